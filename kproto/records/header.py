"""The 61-byte header of a record batch, format v2 (KIP-98; `DefaultRecordBatch` in Apache Kafka).

Everything that is stored or sent is a sequence of these batches. The base offset, the length and the leader epoch
lie outside the CRC, so that a broker assigns offsets in place without touching the records.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from ottla.kproto.records.crc import crc32c
from ottla.kproto.records.errors import (
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
)
from ottla.kproto.records.types import BytesLike, Compression, TimestampType

MAGIC_V2 = 2
HEADER_SIZE_BYTES = 61
# What precedes the counted part: base offset (8) and the batch length itself (4).
LENGTH_PREFIX_BYTES = 12
MIN_BATCH_LENGTH = HEADER_SIZE_BYTES - LENGTH_PREFIX_BYTES

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

# base offset, batch length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp,
# producer id, producer epoch, base sequence, record count
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_ATTRIBUTES = struct.Struct(">h")
_unpack_header = _HEADER.unpack_from
#: The 61 bytes from the fields of `BatchHeader` in their order.
pack_header = _HEADER.pack

_MAGIC_POS = 16
_CRC_POS = 17
_ATTRIBUTES_POS = 21
_LEADER_EPOCH_POS = 12
_MAX_TIMESTAMP_POS = 35

_SEQUENCE_MODULUS = 1 << 31
_MAX_COMPRESSION = max(Compression)

# The least that a record can take: length, attributes, two deltas, two lengths, header count.
MIN_RECORD_BYTES = 7
# How many bytes can come out of one at the most, by codec: in gzip 258 bytes take two bits, in snappy 64 bytes take
# three, in lz4 a length grows by 255 with each byte, in zstd a block of 128 KiB takes four bytes.
_LARGEST_RATIOS = (1, 1032, 22, 255, 32_768, 0, 0, 0)
# What a producer never sets: what only brokers set, and what has no meaning.
_NOT_A_PRODUCERS = ~(COMPRESSION_MASK | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG)


class BatchHeader(NamedTuple):
    """One batch's header as it stands in the bytes; the properties read the attribute bits and derived values.

    Timestamps are milliseconds since the epoch. `batch_length` is the wire field (it does not count its own 12 leading
    bytes); `size_bytes` is the whole batch.
    """

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset that follows this batch, also where compaction removed its last records."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The records' codec; UnsupportedCompressionError if the bits name none."""
        code = self.attributes & COMPRESSION_MASK
        if code > _MAX_COMPRESSION:
            raise UnsupportedCompressionError(f"compression codec {code} does not exist")
        return Compression(code)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & LOG_APPEND_TIME_FLAG) >> 3)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a producer's transaction. Without a producer id the bit alone means nothing."""
        return self.producer_id >= 0 and bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop this batch's tombstones and markers (KIP-534), None if it was not set yet.

        It is stored in place of the base timestamp; the records' deltas then count from it.
        """
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number, which wraps from 2147483647 to 0; -1 if the batch carries none."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_MODULUS

    def pack(self) -> bytes:
        """Return the 61 bytes."""
        return pack_header(*self)


_new_tuple = tuple.__new__


def parse_batch_header(buf: BytesLike, pos: int = 0) -> BatchHeader:
    """Return the header of the batch that begins at `pos`, which must lie complete within `buf`.

    Raises CorruptRecordError if the bytes end early or the length is impossible, UnsupportedMagicError for v0 and v1.
    Nothing else is checked: see `validate_batch` and `verify_crc`.
    """
    available = len(buf) - pos
    if available < HEADER_SIZE_BYTES:
        _raise_short(buf, pos, available)
    header: BatchHeader = _new_tuple(BatchHeader, _unpack_header(buf, pos))
    batch_length = header[1]
    if header[3] != MAGIC_V2:
        raise UnsupportedMagicError(f"batch at byte {pos} has magic {header[3]}, only 2 is supported")
    if batch_length < MIN_BATCH_LENGTH:
        raise CorruptRecordError(f"batch at byte {pos} has length {batch_length}, the least is {MIN_BATCH_LENGTH}")
    if batch_length + LENGTH_PREFIX_BYTES > available:
        raise CorruptRecordError(
            f"batch at byte {pos} needs {batch_length + LENGTH_PREFIX_BYTES} bytes, {available} are there"
        )
    return header


def _raise_short(buf: BytesLike, pos: int, available: int) -> None:
    if available > _MAGIC_POS and buf[pos + _MAGIC_POS] != MAGIC_V2:
        raise UnsupportedMagicError(f"batch at byte {pos} has magic {buf[pos + _MAGIC_POS]}, only 2 is supported")
    raise CorruptRecordError(f"batch header at byte {pos} needs {HEADER_SIZE_BYTES} bytes, {available} are there")


def iter_batches(buf: BytesLike) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every batch in `buf`, which must hold whole batches only.

    A structural walk: it reads headers, never records, and raises what `parse_batch_header` raises at the first batch
    that does not fit. Headers before that have been yielded by then.
    """
    pos = 0
    size = len(buf)
    while pos < size:
        header = parse_batch_header(buf, pos)
        yield pos, header
        pos += header[1] + LENGTH_PREFIX_BYTES


def whole_batches_size_bytes(buf: BytesLike) -> int:
    """Return how many leading bytes of `buf` are complete batches.

    For readers of a fetch response, whose last batch a broker may cut off at the size limit.
    """
    pos = 0
    last_start = len(buf) - HEADER_SIZE_BYTES
    while pos <= last_start:
        end = pos + LENGTH_PREFIX_BYTES + _INT32.unpack_from(buf, pos + 8)[0]
        if end - pos < HEADER_SIZE_BYTES:
            raise CorruptRecordError(f"batch at byte {pos} has size {end - pos}")
        if end > len(buf):
            break
        pos = end
    return pos


def crc_matches(buf: BytesLike, pos: int, header: BatchHeader) -> bool:
    """Say whether the stored CRC is that of the bytes from the attributes to the batch's end."""
    return header.crc == crc32c(buf, pos + _ATTRIBUTES_POS, pos + LENGTH_PREFIX_BYTES + header.batch_length)


def verify_crc(buf: BytesLike, pos: int, header: BatchHeader) -> None:
    """Raise CorruptRecordError unless the batch's CRC is right."""
    if not crc_matches(buf, pos, header):
        raise CorruptRecordError(f"batch at byte {pos} (base offset {header.base_offset}): CRC mismatch")


def validate_batch(header: BatchHeader) -> None:
    """Check what holds for every batch anywhere, also after compaction has removed records from it.

    Raises CorruptRecordError, InvalidRecordError or UnsupportedCompressionError. O(1): records are not touched.
    """
    base_offset, _, _, _, _, attributes, delta, _, _, producer_id, producer_epoch, base_sequence, count = header
    if attributes & COMPRESSION_MASK > _MAX_COMPRESSION:
        raise UnsupportedCompressionError(f"compression codec {attributes & COMPRESSION_MASK} does not exist")
    if delta < 0:
        raise InvalidRecordError(f"last offset delta {delta} is negative")
    if base_offset < 0:
        raise InvalidRecordError(f"base offset {base_offset} is negative")
    if not 0 <= count <= delta + 1:
        raise InvalidRecordError(f"{count} records do not fit in {delta + 1} offsets")
    if producer_id < -1 or producer_epoch < -1 or base_sequence < -1:
        raise InvalidRecordError(
            f"producer id {producer_id}, epoch {producer_epoch}, sequence {base_sequence}: one is below -1"
        )
    if producer_id < 0 and attributes & TRANSACTIONAL_FLAG and attributes & CONTROL_FLAG:
        raise InvalidRecordError("the end of a transaction without a producer id")


def validate_produced_batch(header: BatchHeader) -> None:
    """Check a batch that a client produced: besides `validate_batch`, what `LogValidator` in Apache Kafka asks.

    Offsets are dense from 0, at least one record is there, it is not a control batch, and a producer id comes with a
    sequence and an epoch. Beyond that, more records than the bytes can hold are refused, and so are attributes that
    only brokers set or that have no meaning. Raises as `validate_batch` does.
    """
    base_offset, length, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, count = header
    if (
        count == delta + 1
        and 0 < count * MIN_RECORD_BYTES <= (length - MIN_BATCH_LENGTH) * _LARGEST_RATIOS[attributes & COMPRESSION_MASK]
        and not attributes & _NOT_A_PRODUCERS
        and base_offset >= 0
        and (
            (sequence >= 0 and epoch >= 0)
            if producer_id >= 0
            else (producer_id == -1 and sequence >= -1 and epoch >= -1)
        )
    ):
        return
    _refuse_produced_batch(header)


def _refuse_produced_batch(header: BatchHeader) -> NoReturn:
    """Say what is wrong with a batch that `validate_produced_batch` does not take."""
    validate_batch(header)
    count, attributes = header.record_count, header.attributes
    if count <= 0:
        raise InvalidRecordError("a produced batch without records")
    if count != header.last_offset_delta + 1:
        raise InvalidRecordError(f"{count} records but a last offset delta of {header.last_offset_delta}")
    if attributes & CONTROL_FLAG:
        raise InvalidRecordError("clients may not write control records")
    if attributes & _NOT_A_PRODUCERS:
        raise InvalidRecordError(f"attributes {attributes:#06x}: a producer does not set all of these bits")
    if header.has_producer_id and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecordError(
            f"producer id {header.producer_id} with sequence {header.base_sequence}, epoch {header.producer_epoch}"
        )
    raise InvalidRecordError(f"a batch of {header.size_bytes} bytes cannot hold {count} records")


def patch_base_offset_and_epoch(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write the assigned base offset and the leader epoch into the batch at `pos`; its CRC stays right."""
    _INT64.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + _LEADER_EPOCH_POS, leader_epoch)


def patch_log_append_time(buf: bytearray | memoryview, pos: int, timestamp_ms: int) -> None:
    """Stamp the batch at `pos` as appended at `timestamp_ms` and recompute its CRC.

    The records keep their own timestamps; readers take the batch's when the attribute bit is set.
    """
    header = parse_batch_header(buf, pos)
    attributes = header.attributes | LOG_APPEND_TIME_FLAG
    if attributes == header.attributes and header.max_timestamp_ms == timestamp_ms:
        return
    _ATTRIBUTES.pack_into(buf, pos + _ATTRIBUTES_POS, attributes)
    _INT64.pack_into(buf, pos + _MAX_TIMESTAMP_POS, timestamp_ms)
    _CRC.pack_into(buf, pos + _CRC_POS, crc32c(buf, pos + _ATTRIBUTES_POS, pos + header.size_bytes))
