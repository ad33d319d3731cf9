"""The few types that every module of this package shares."""

from enum import IntEnum
from typing import TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1


class Compression(IntEnum):
    """The codec of a batch's records: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who stamped the records: the producer, or the broker at append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1
