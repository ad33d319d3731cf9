"""What the records field of a produce request must hold, before its content is looked at."""

from __future__ import annotations

from typing import Final

from ottla.kproto.records import (
    LENGTH_PREFIX_BYTES,
    Compression,
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedCompressionError,
)

_ZSTD_MIN_VERSION: Final = 7
_MIN_RECORD_SIZE: Final = 14
_SIZE_UP_TO_MAGIC: Final = 17
_MAGIC_V2: Final = 2
_COMPRESSION_MASK: Final = 0x07
_TRANSACTIONAL_FLAG: Final = 0x10
# Where a batch has its length, its format, and the lower byte of its attributes.
_LENGTH: Final = slice(8, 12)
_MAGIC_POS: Final = 16
_ATTRIBUTES_POS: Final = 22


def check_produced_records(records: memoryview, version: int) -> None:
    """Raise unless there is exactly one whole batch of format v2, in a codec that this version may carry.

    Kafka's `ProduceRequest.validateRecords` and the errors that it has for each case: InvalidRecordError,
    CorruptRecordError for sizes and formats that never were, UnsupportedCompressionError for zstd before Produce v7.
    """
    size_bytes = len(records)
    if size_bytes < LENGTH_PREFIX_BYTES:
        raise InvalidRecordError("a produce request holds a record batch for each partition")
    length = int.from_bytes(records[_LENGTH], "big", signed=True)
    if length < _MIN_RECORD_SIZE:
        raise CorruptRecordError(f"a batch of length {length} is too short for any format")
    if size_bytes < _SIZE_UP_TO_MAGIC:
        raise InvalidRecordError("a produce request holds a whole record batch for each partition")
    magic = records[_MAGIC_POS]
    if magic > _MAGIC_V2:
        raise CorruptRecordError(f"there is no record format {magic}")
    batch_bytes = LENGTH_PREFIX_BYTES + length
    if size_bytes < batch_bytes:
        raise InvalidRecordError("a produce request holds a whole record batch for each partition")
    if magic != _MAGIC_V2:
        raise InvalidRecordError(f"record format {magic} was given up in Kafka 4.0: only 2 is taken")
    if version < _ZSTD_MIN_VERSION and records[_ATTRIBUTES_POS] & _COMPRESSION_MASK == Compression.ZSTD:
        raise UnsupportedCompressionError(f"zstd needs Produce {_ZSTD_MIN_VERSION} or later")
    if size_bytes > batch_bytes:
        raise InvalidRecordError("a produce request holds one record batch for each partition, not more")


def is_transactional(records: memoryview) -> bool:
    """Whether the (first) batch belongs to a transaction."""
    return len(records) > _ATTRIBUTES_POS and bool(records[_ATTRIBUTES_POS] & _TRANSACTIONAL_FLAG)
