"""What must be true of a batch before a leader appends it (Kafka's `UnifiedLog.analyzeAndValidateRecords`,
`LogValidator`).

By default the checks cost time per batch, not per record. If the topic's settings ask for more (`checks_records`), or
the header alone is not enough to decide, every record of a client's batch is looked at: as many as the topic accepts,
and only as far as they may inflate. Nothing is changed before all checks have passed.
"""

from __future__ import annotations

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import (
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    CorruptRecordError,
    DecompressedSizeError,
    assemble_batch,
    batch_payload,
    compress,
    crc_matches,
    iter_records,
    parse_batch_header,
    validate_batch,
    validate_produced_batch,
    walk_produced_records,
)
from ottla.kproto.records import InvalidRecordError as BadRecordError
from ottla.kproto.records.record import encode_record
from ottla.storage.config import INT64_MAX, MAX_DECOMPRESSED_BYTES, LogConfig, TimestampType
from ottla.storage.errors import (
    ChecksTakeLongError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    RefusedRecordsError,
)
from ottla.storage.log.append_types import CheckedBatch

__all__ = [
    "INFLATION_FACTOR",
    "check_and_recompress",
    "check_follower_batch",
    "check_leader_batch",
    "checks_records",
]

#: How far the records of a batch may inflate if they are looked at: to this many times `max.message.bytes`, or to 1
#: MiB. And a batch may hold at most as many records as `max.message.bytes` has bytes.
INFLATION_FACTOR = 16
_LEAST_INFLATED_BYTES = 1_048_576
_AT_ONCE_BYTES = 8_192

_LOG_APPEND_TIME_FLAG = 0x08
_COMPRESSION_MASK = 0x07
# How many records an error names. The check ends there, because a batch may hold very many.
_NAMED_RECORDS = 100
_PRODUCERS_OWN = "producer"


def checks_records(config: LogConfig) -> bool:
    """Whether the checks look at every record of a client's batch."""
    return (
        config.validates_all_records
        or config.compact
        or config.compression_type != _PRODUCERS_OWN
        or config.message_timestamp_before_max_ms != INT64_MAX
        or config.max_decompressed_record_bytes < MAX_DECOMPRESSED_BYTES
    )


def check_leader_batch(
    records: memoryview, config: LogConfig, now_ms: int, *, from_client: bool, checks_all: bool
) -> tuple[BatchHeader, memoryview | None]:
    """Return the header of the one batch in `records`, and what replaces the batch (None if it stays as it is).

    Raises one of the errors of an append. `checks_all` is what `checks_records` says of the settings. Without it the
    header decides, unless it shows that Kafka would refuse or change something in the batch. Checks that take longer
    than an event loop can wait are not begun: ChecksTakeLongError is raised, and `check_and_recompress` is for another
    thread.
    """
    if checks_all and from_client and len(records) > _AT_ONCE_BYTES:
        raise ChecksTakeLongError(f"the records in a batch of {len(records)} bytes take too long to check at once")
    header = _check_header(records, config, from_client=from_client)
    if (
        checks_all
        or header.max_timestamp_ms > now_ms
        or header.max_timestamp_ms < header.base_timestamp_ms
        or header.attributes & _LOG_APPEND_TIME_FLAG
    ):
        if not from_client:
            return _recompressed(records, header, config)
        if len(records) > _AT_ONCE_BYTES or _restamps(header, config):
            raise ChecksTakeLongError(f"the records in a batch of {len(records)} bytes take too long to check at once")
        try:
            return _check_records(records, header, config, now_ms, min(_AT_ONCE_BYTES, _inflated_limit_bytes(config)))
        except DecompressedSizeError as error:
            raise ChecksTakeLongError("compressed records take too long to check at once") from error
    return header, None


def check_and_recompress(records: memoryview, config: LogConfig, now_ms: int) -> CheckedBatch:
    """Check a client's batch as a leader does, look at every record, and bring it into the topic's codec.

    May run in any thread; raises the errors of an append. As in Kafka, a largest timestamp that is not that of the
    records is corrected.
    """
    header = _check_header(records, config, from_client=True)
    try:
        return CheckedBatch(*_check_records(records, header, config, now_ms, _inflated_limit_bytes(config)), config)
    except DecompressedSizeError as error:
        raise RecordTooLargeError(str(error)) from error


def check_follower_batch(records: memoryview, pos: int) -> BatchHeader:
    """Return the header of the batch at `pos` as a leader sent it; CorruptBatchError unless it is sound."""
    try:
        header = parse_batch_header(records, pos)
        validate_batch(header)
    except ProtocolError as error:
        raise CorruptBatchError(str(error)) from error
    if not crc_matches(records, pos, header):
        raise CorruptBatchError(f"the batch at offset {header.base_offset} from the leader fails its CRC")
    return header


def _check_header(records: memoryview, config: LogConfig, *, from_client: bool) -> BatchHeader:
    size_bytes = len(records)
    try:
        header = parse_batch_header(records)
        if header.batch_length + LENGTH_PREFIX_BYTES != size_bytes:
            raise InvalidRecordError("a produce request holds exactly one batch for each partition")
        if header.base_offset != 0 and from_client:
            raise InvalidRecordError(f"a produced batch begins at offset 0, not {header.base_offset}")
        if size_bytes > config.max_message_bytes:
            raise RecordTooLargeError(f"a batch of {size_bytes} bytes: the topic accepts {config.max_message_bytes}")
        if not crc_matches(records, 0, header):
            raise CorruptBatchError("a produced batch fails its CRC")
        if from_client:
            validate_produced_batch(header)
        else:
            validate_batch(header)
    except CorruptRecordError as error:
        raise CorruptBatchError(str(error)) from error
    except BadRecordError as error:
        raise InvalidRecordError(str(error)) from error
    return header


def _inflated_limit_bytes(config: LogConfig) -> int:
    return max(config.max_message_bytes * INFLATION_FACTOR, _LEAST_INFLATED_BYTES)


def _check_records(
    records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, limit_bytes: int
) -> tuple[BatchHeader, memoryview | None]:
    """DecompressedSizeError if the records inflate beyond the limit."""
    if header.record_count > _inflated_limit_bytes(config) // INFLATION_FACTOR:
        raise RecordTooLargeError(f"a batch of {header.record_count} records is more than the topic accepts")
    try:
        payload = batch_payload(records, 0, header, limit_bytes)
        max_timestamp_ms = _walk(payload, header, config, now_ms)
        restamped = _restamped(header, payload) if _restamps(header, config) else None
    except (BadRecordError, CorruptRecordError) as error:
        raise InvalidRecordError(str(error)) from error
    codec = _target_codec(header, config)
    kept = header._replace(
        attributes=header.attributes & ~(_LOG_APPEND_TIME_FLAG | _COMPRESSION_MASK) | codec,
        max_timestamp_ms=max_timestamp_ms,
    )
    if kept == header:
        return header, None
    if codec == header.compression:
        return _assembled(kept, None, records, config)
    if restamped is not None:
        kept, payload = kept._replace(base_timestamp_ms=header.max_timestamp_ms), restamped
    return _assembled(kept, payload, records, config)


def _walk(payload: bytes, header: BatchHeader, config: LogConfig, now_ms: int) -> int:
    """Look at every record; return the largest timestamp. The first hundred refused records are named."""
    needs_keys = config.compact
    stamps = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    stamped = bool(header.attributes & _LOG_APPEND_TIME_FLAG)
    latest_ms, earliest_ms = INT64_MAX, -INT64_MAX
    if not stamps:
        latest_ms = now_ms + config.message_timestamp_after_max_ms
        earliest_ms = now_ms - config.message_timestamp_before_max_ms
    largest_ms = NO_TIMESTAMP
    most_bytes = config.max_decompressed_record_bytes if header.attributes & _COMPRESSION_MASK else len(payload)
    refused: list[tuple[int, str]] = []
    error: type[RefusedRecordsError] = InvalidRecordError
    for index, (timestamp_ms, key_size) in enumerate(walk_produced_records(payload, header, most_bytes)):
        if timestamp_ms > largest_ms:
            largest_ms = timestamp_ms
        if needs_keys and key_size < 0:
            refused.append((index, "a compacted topic accepts no record without a key"))
        elif timestamp_ms != NO_TIMESTAMP and not earliest_ms <= timestamp_ms <= latest_ms:
            refused.append((index, f"timestamp {timestamp_ms} is not from {max(0, earliest_ms)} to {latest_ms}"))
            error = InvalidTimestampError
        elif stamped and (stamps or timestamp_ms == NO_TIMESTAMP):
            refused.append((index, "a producer does not set the timestamp type LogAppendTime"))
            error = InvalidTimestampError
        else:
            continue
        if len(refused) == _NAMED_RECORDS:
            break
    if refused and error is InvalidTimestampError:
        raise InvalidTimestampError("records have timestamps that the topic does not accept", refused)
    if refused:
        raise InvalidRecordError("records of the batch have no key", refused)
    return largest_ms


def _target_codec(header: BatchHeader, config: LogConfig) -> Compression:
    """The codec in which the topic keeps the batch; markers stay as they are."""
    wanted = config.compression_type
    if wanted == _PRODUCERS_OWN or header.is_control:
        return header.compression
    return Compression.NONE if wanted == "uncompressed" else Compression[wanted.upper()]


def _restamps(header: BatchHeader, config: LogConfig) -> bool:
    """Whether the records are written anew as a reader of the producer's batch sees them: all with its timestamp."""
    return bool(header.attributes & _LOG_APPEND_TIME_FLAG) and _target_codec(header, config) != header.compression


def _restamped(header: BatchHeader, payload: bytes) -> bytes:
    """Kafka's `LogValidator.buildRecordsAndAssignOffsets`, of a batch with the timestamp type LogAppendTime."""
    plain = assemble_batch(header._replace(attributes=_LOG_APPEND_TIME_FLAG), payload)
    return b"".join(
        encode_record(record.offset - header.base_offset, 0, record.key, record.value, record.headers)
        for record in iter_records(plain)
    )


def _recompressed(records: memoryview, header: BatchHeader, config: LogConfig) -> tuple[BatchHeader, memoryview | None]:
    """A coordinator's batch in the topic's codec."""
    if config.compression_type == _PRODUCERS_OWN:
        return header, None
    codec = _target_codec(header, config)
    if codec == header.compression:
        return header, None
    kept = header._replace(attributes=header.attributes & ~_COMPRESSION_MASK | codec)
    return _assembled(kept, batch_payload(records, 0, header), records, config)


def _assembled(
    header: BatchHeader, payload: bytes | None, records: memoryview, config: LogConfig
) -> tuple[BatchHeader, memoryview]:
    """The batch with this header, and these records in its codec, else those that it has.

    Raises RecordTooLargeError if it is now larger than `max.message.bytes`: Kafka checks again, too.
    """
    content = bytes(records[HEADER_SIZE_BYTES:]) if payload is None else compress(header.compression, payload)
    size_bytes = HEADER_SIZE_BYTES + len(content)
    if size_bytes > config.max_message_bytes:
        raise RecordTooLargeError(
            f"a batch of {size_bytes} bytes in the topic's codec: the topic accepts {config.max_message_bytes}"
        )
    view = memoryview(bytearray(assemble_batch(header, content)))
    return parse_batch_header(view), view
