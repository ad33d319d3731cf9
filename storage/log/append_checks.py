"""What a batch must fulfil before a leader appends it (Kafka's `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`).

The checks cost per batch, not per record, but for compacted topics (every record needs a key), for topics with a
lower bound on timestamps, and for topics that recompress. Nothing is changed before all checks have passed.
"""

from __future__ import annotations

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import (
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Compression,
    CorruptRecordError,
    crc_matches,
    iter_keys,
    iter_positions,
    iter_records,
    parse_batch_header,
    rebuild_batch,
    validate_batch,
    validate_produced_batch,
)
from ottla.kproto.records import InvalidRecordError as BadRecordError
from ottla.storage.config import INT64_MAX, LogConfig, TimestampType
from ottla.storage.errors import CorruptBatchError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from ottla.storage.log.append_types import CheckedBatch

__all__ = ["check_and_recompress", "check_follower_batch", "check_leader_batch", "checks_records"]

_LOG_APPEND_TIME_FLAG = 0x08
_COMPRESSION_MASK = 0x07
# How many records an error names; a batch may hold very many.
_NAMED_RECORDS = 100
_PRODUCERS_OWN = "producer"


def checks_records(config: LogConfig) -> bool:
    """Whether the checks look at every record: the cost of a large batch is then one for a worker thread."""
    return (
        config.compact
        or config.compression_type != _PRODUCERS_OWN
        or config.message_timestamp_before_max_ms != INT64_MAX
    )


def check_and_recompress(records: memoryview, config: LogConfig, now_ms: int, *, from_client: bool) -> CheckedBatch:
    """Check the batch as a leader does, and bring it into the topic's codec. In any thread."""
    header = check_leader_batch(records, config, now_ms, from_client=from_client, checks_all=True)
    recompressed = _recompress(records, header, config.compression_type)
    if recompressed is None:
        return CheckedBatch(header, None, config)
    view = memoryview(bytearray(recompressed))
    return CheckedBatch(parse_batch_header(view), view, config)


def check_leader_batch(
    records: memoryview, config: LogConfig, now_ms: int, *, from_client: bool, checks_all: bool
) -> BatchHeader:
    """Return the header of the one batch in `records`, or raise one of the errors of an append.

    `checks_all` is what `checks_records` says of the settings.
    """
    size_bytes = len(records)
    try:
        header = parse_batch_header(records)
        if header.batch_length + LENGTH_PREFIX_BYTES != size_bytes:
            raise InvalidRecordError("a produce request holds exactly one batch a partition")
        if header.base_offset != 0 and from_client:
            raise InvalidRecordError(f"a produced batch begins at offset 0, not {header.base_offset}")
        if size_bytes > config.max_message_bytes:
            raise RecordTooLargeError(f"a batch of {size_bytes} bytes, the topic takes {config.max_message_bytes}")
        if not crc_matches(records, 0, header):
            raise CorruptBatchError("a produced batch fails its CRC")
        if from_client:
            validate_produced_batch(header)
        else:
            validate_batch(header)
        if header.max_timestamp_ms > now_ms or header.attributes & _LOG_APPEND_TIME_FLAG or checks_all:
            _check_timestamps(records, header, config, now_ms)
        if checks_all and config.compact and from_client:
            _check_keys(records, header)
    except CorruptRecordError as error:
        raise CorruptBatchError(str(error)) from error
    except BadRecordError as error:
        raise InvalidRecordError(str(error)) from error
    return header


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


def _check_timestamps(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if config.message_timestamp_type is not TimestampType.CREATE_TIME or header.is_control:
        return
    if header.attributes & _LOG_APPEND_TIME_FLAG:
        raise InvalidTimestampError("a producer does not set the timestamp type LogAppendTime")
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    if header.max_timestamp_ms <= latest_ms and config.message_timestamp_before_max_ms == INT64_MAX:
        return
    refused = [
        (index, f"timestamp {timestamp_ms} is not from {max(0, earliest_ms)} to {latest_ms}")
        for index, (_, timestamp_ms) in enumerate(iter_positions(records, 0, header))
        if timestamp_ms >= 0 and not earliest_ms <= timestamp_ms <= latest_ms
    ]
    if refused or header.max_timestamp_ms > latest_ms:
        raise InvalidTimestampError("records lie outside the time that the topic takes", refused[:_NAMED_RECORDS])


def _check_keys(records: memoryview, header: BatchHeader) -> None:
    refused = [
        (index, "a compacted topic takes no record without a key")
        for index, (_, key, _) in enumerate(iter_keys(records, 0, header))
        if key is None
    ]
    if refused:
        raise InvalidRecordError(f"{len(refused)} records of the batch have no key", refused[:_NAMED_RECORDS])


def _recompress(records: memoryview, header: BatchHeader, compression_type: str) -> bytes | None:
    """Return the batch in the topic's own codec; None if it is the producer's already."""
    if compression_type == _PRODUCERS_OWN:
        return None
    target = Compression.NONE if compression_type == "uncompressed" else Compression[compression_type.upper()]
    if header.attributes & _COMPRESSION_MASK == target:
        return None
    changed = header._replace(attributes=header.attributes & ~_COMPRESSION_MASK | target)
    return rebuild_batch(changed, iter_records(records, 0, header))
