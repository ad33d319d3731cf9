"""Checks of a Produce request's records field, before its content is parsed."""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.coordinator.transaction.state import ProducerIdAndEpoch
from ottla.kproto.records import (
    LENGTH_PREFIX_BYTES,
    Compression,
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedCompressionError,
)

FIRST_WITH_ALL_CODECS: Final = 7
"""Of Produce: the first version whose batches may be in zstd."""

_MIN_RECORD_SIZE: Final = 14
_SIZE_UP_TO_MAGIC: Final = 17
_MAGIC_V2: Final = 2
_COMPRESSION_MASK: Final = 0x07
_TRANSACTIONAL_FLAG: Final = 0x10
# The places in a batch of its length, its format, and the lower byte of its attributes.
_LENGTH_POS: Final = 8
_unpack_length: Final = Struct(">i").unpack_from
_MAGIC_POS: Final = 16
_ATTRIBUTES_POS: Final = 22
_PRODUCER_POS: Final = 43
_PRODUCER: Final = Struct(">qh")
_SEQUENCE: Final = slice(53, 57)


def the_one_batch(records: memoryview, version: int) -> memoryview:
    """The one batch of format v2 that a partition's field must hold, without bytes after it that are not a batch.

    The cases and errors are those of Kafka's `ProduceRequest.validateRecords`: InvalidRecordError; CorruptRecordError
    for sizes and formats that never were; UnsupportedCompressionError for zstd before Produce v7.
    """
    size_bytes = len(records)
    if (
        size_bytes >= LENGTH_PREFIX_BYTES + _MIN_RECORD_SIZE
        and _unpack_length(records, _LENGTH_POS)[0] == size_bytes - LENGTH_PREFIX_BYTES
        and records[_MAGIC_POS] == _MAGIC_V2
        and version >= FIRST_WITH_ALL_CODECS
    ):
        return records
    batch_bytes = _batch_size_bytes(records)
    if batch_bytes is None:
        raise InvalidRecordError("a produce request holds a whole record batch for each partition")
    if records[_MAGIC_POS] != _MAGIC_V2:
        raise InvalidRecordError(f"record format {records[_MAGIC_POS]} was dropped in Kafka 4.0: only 2 is accepted")
    if version < FIRST_WITH_ALL_CODECS and records[_ATTRIBUTES_POS] & _COMPRESSION_MASK == Compression.ZSTD:
        raise UnsupportedCompressionError(f"zstd needs Produce {FIRST_WITH_ALL_CODECS} or later")
    if batch_bytes == size_bytes:
        return records
    if _batch_size_bytes(records[batch_bytes:]) is not None:
        raise InvalidRecordError("a produce request holds one record batch for each partition, not more")
    return records[:batch_bytes]


def _batch_size_bytes(records: memoryview) -> int | None:
    """The size of the batch at the front, None if it is not there whole."""
    available = len(records)
    if available < LENGTH_PREFIX_BYTES:
        return None
    (length,) = _unpack_length(records, _LENGTH_POS)
    if length < _MIN_RECORD_SIZE:
        raise CorruptRecordError(f"a batch of length {length} is too short for any format")
    if available < _SIZE_UP_TO_MAGIC:
        return None
    if records[_MAGIC_POS] > _MAGIC_V2:
        raise CorruptRecordError(f"there is no record format {records[_MAGIC_POS]}")
    size_bytes = LENGTH_PREFIX_BYTES + length
    return size_bytes if size_bytes <= available else None


def sequence_of(records: memoryview) -> int:
    """The batch's first sequence."""
    return int.from_bytes(records[_SEQUENCE], "big", signed=True)


def is_transactional(records: memoryview) -> bool:
    """Whether the (first) batch belongs to a transaction."""
    # What older formats have in that place is a part of their checksum or of their content.
    return (
        len(records) > _ATTRIBUTES_POS
        and bool(records[_ATTRIBUTES_POS] & _TRANSACTIONAL_FLAG)
        and records[_MAGIC_POS] == _MAGIC_V2
    )


def producer_of(records: memoryview) -> ProducerIdAndEpoch:
    """Who wrote the batch."""
    return ProducerIdAndEpoch(*_PRODUCER.unpack_from(records, _PRODUCER_POS))
