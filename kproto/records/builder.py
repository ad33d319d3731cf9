"""Building record batches: one record at a time, or from existing records."""

import struct
from collections.abc import Iterable

from ottla.kproto.records.compression import compress
from ottla.kproto.records.crc import crc32c
from ottla.kproto.records.crc import value as crc32c_of
from ottla.kproto.records.errors import InvalidRecordError
from ottla.kproto.records.header import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    pack_header,
)
from ottla.kproto.records.record import Record, RecordHeaders, encode_record
from ottla.kproto.records.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Compression,
    TimestampType,
)
from ottla.kproto.records.varint import varint

_CRC_START = 21
_MAX_INT32 = (1 << 31) - 1
# The header of a batch up to its CRC, and from there on; the length that it states of a batch without records.
_KEYED_HEAD = struct.Struct(">qiibI")
_KEYED_TAIL = struct.Struct(">hiqqqhii")
_EMPTY_LENGTH = HEADER_SIZE_BYTES - LENGTH_PREFIX_BYTES
# How a record begins whose timestamp is the batch's: its attributes and deltas. Usual ones are at hand, and sizes.
_KEYED_START = bytes(2)
_FEW = 256
_SIZES = [varint(size) for size in range(_FEW)]
_STARTS = [_KEYED_START + size for size in _SIZES]
_NO_BYTES = varint(-1)
_NO_HEADERS = varint(0)


class BatchBuilder:
    """Gathers records and makes one batch of them.

    Records take consecutive offsets from `base_offset`, unless `append` is given a higher one. `size_bytes` is what the
    batch would take uncompressed, so that a caller can stop at its limit. InvalidRecordError if the format cannot hold
    what is given.
    """

    __slots__ = (
        "_base_timestamp_ms",
        "_encoded",
        "_max_timestamp_ms",
        "_next_offset",
        "base_offset",
        "base_sequence",
        "compression",
        "is_control",
        "is_transactional",
        "leader_epoch",
        "level",
        "producer_epoch",
        "producer_id",
        "size_bytes",
        "timestamp_type",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    ) -> None:
        self.base_offset = base_offset
        self.compression = compression
        self.level = level
        self.leader_epoch = leader_epoch
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional
        self.is_control = is_control
        self.timestamp_type = timestamp_type
        self.size_bytes = HEADER_SIZE_BYTES
        self._encoded: list[bytes] = []
        self._next_offset = base_offset
        self._base_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_ms = NO_TIMESTAMP

    @property
    def record_count(self) -> int:
        return len(self._encoded)

    @property
    def next_offset(self) -> int:
        """The offset that the next record would get."""
        return self._next_offset

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int = NO_TIMESTAMP,
        headers: RecordHeaders = (),
        *,
        offset: int = -1,
    ) -> int:
        """Add a record and return its offset."""
        if offset == -1:
            offset = self._next_offset
        elif offset < self._next_offset:
            raise InvalidRecordError(f"offset {offset} is below {self._next_offset}, the next one")
        delta = offset - self.base_offset
        if delta > _MAX_INT32:
            raise InvalidRecordError(f"offset {offset} is too far from the base offset {self.base_offset}")
        if not self._encoded:
            self._base_timestamp_ms = timestamp_ms
        encoded = encode_record(delta, timestamp_ms - self._base_timestamp_ms, key, value, headers)
        self._encoded.append(encoded)
        self.size_bytes += len(encoded)
        self._next_offset = offset + 1
        if timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
        return offset

    def build(self, *, last_offset: int | None = None) -> bytes:
        """Return the batch. `last_offset` extends its offset range beyond the last record, as compaction needs."""
        if last_offset is None:
            last_offset = self._next_offset - 1
        if not 0 <= last_offset - self.base_offset <= _MAX_INT32 or last_offset < self._next_offset - 1:
            raise InvalidRecordError(f"last offset {last_offset} for records up to {self._next_offset - 1}")
        attributes = self.compression | self.timestamp_type << 3
        if self.is_transactional:
            attributes |= TRANSACTIONAL_FLAG
        if self.is_control:
            attributes |= CONTROL_FLAG
        header = BatchHeader(
            base_offset=self.base_offset,
            batch_length=0,
            leader_epoch=self.leader_epoch,
            magic=MAGIC_V2,
            crc=0,
            attributes=attributes,
            last_offset_delta=last_offset - self.base_offset,
            base_timestamp_ms=self._base_timestamp_ms,
            max_timestamp_ms=self._max_timestamp_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=len(self._encoded),
        )
        return assemble_batch(header, compress(self.compression, b"".join(self._encoded), self.level))


def assemble_batch(header: BatchHeader, payload: bytes) -> bytes:
    """Return header and (already compressed) records as one batch; its length and CRC are computed here.

    Raises InvalidRecordError if a value of the header is out of its range.
    """
    batch_length = HEADER_SIZE_BYTES - LENGTH_PREFIX_BYTES + len(payload)
    if batch_length > _MAX_INT32:
        raise InvalidRecordError(f"a batch of {batch_length} bytes")
    try:
        base_offset, _, epoch, magic, _, *rest = header
        head = pack_header(base_offset, batch_length, epoch, magic, 0, *rest)
    except struct.error as error:
        raise InvalidRecordError(f"a batch header cannot hold its values: {error}") from error
    tail = head[_CRC_START:] + payload
    checksum = crc32c(tail, 0, len(tail))
    return b"".join((head[: _CRC_START - 4], checksum.to_bytes(4, "big"), tail))


def build_keyed(
    records: Iterable[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
) -> bytes:
    """`build_batch` of keys and values, at least one, that have one timestamp and no headers: coordinators write many.

    InvalidRecordError if the format cannot hold the timestamp or the producer.
    """
    parts: list[bytes] = []
    count = 0
    for key, value in records:
        size = len(key)
        key_size = _SIZES[size] if size < _FEW else varint(size)
        if value is None:
            value_size, value = _NO_BYTES, b""
        else:
            size = len(value)
            value_size = _SIZES[size] if size < _FEW else varint(size)
        start = _STARTS[count] if count < _FEW else _KEYED_START + varint(count)
        size = len(start) + len(key_size) + len(key) + len(value_size) + len(value) + 1
        parts += (_SIZES[size] if size < _FEW else varint(size), start, key_size, key, value_size, value, _NO_HEADERS)
        count += 1
    payload = b"".join(parts)
    attributes = TRANSACTIONAL_FLAG if is_transactional else 0
    try:
        tail = _KEYED_TAIL.pack(
            attributes, count - 1, timestamp_ms, timestamp_ms, producer_id, producer_epoch, NO_SEQUENCE, count
        )
        tail += payload
        return _KEYED_HEAD.pack(0, _EMPTY_LENGTH + len(payload), NO_LEADER_EPOCH, MAGIC_V2, crc32c_of(tail)) + tail
    except struct.error as error:
        raise InvalidRecordError(f"a batch header cannot hold its values: {error}") from error


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Return one batch of `records`, at least one. See `BatchBuilder`; a record's offset of -1 means the next one."""
    builder = BatchBuilder(
        base_offset=base_offset,
        compression=compression,
        level=level,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
        timestamp_type=timestamp_type,
    )
    for record in records:
        builder.append(record.key, record.value, record.timestamp_ms, record.headers, offset=record.offset)
    return builder.build()


def rebuild_batch(
    header: BatchHeader,
    records: Iterable[Record],
    *,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """Return the batch of `header` with only `records` in it, as compaction leaves it.

    Offsets, offset range, producer, sequence, epoch, flags and codec stay, so that sequence checks and fetch offsets
    still work; no records at all make an empty batch. A delete horizon (KIP-534) is kept, or set when one is given.
    """
    if delete_horizon_ms is None:
        delete_horizon_ms = header.delete_horizon_ms
    base_timestamp_ms = header.base_timestamp_ms if delete_horizon_ms is None else delete_horizon_ms
    max_timestamp_ms = NO_TIMESTAMP
    encoded: list[bytes] = []
    for record in records:
        encoded.append(
            encode_record(
                record.offset - header.base_offset,
                record.timestamp_ms - base_timestamp_ms,
                record.key,
                record.value,
                record.headers,
            )
        )
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
    if not encoded or header.attributes & LOG_APPEND_TIME_FLAG:
        max_timestamp_ms = header.max_timestamp_ms
    attributes = header.attributes | (0 if delete_horizon_ms is None else DELETE_HORIZON_FLAG)
    if not encoded:
        # There is nothing to decompress: readers would stumble over a codec that finds no stream.
        attributes &= ~COMPRESSION_MASK
    rebuilt = header._replace(
        attributes=attributes,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        record_count=len(encoded),
    )
    return assemble_batch(rebuilt, compress(rebuilt.compression, b"".join(encoded), level))
