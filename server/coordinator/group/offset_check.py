"""Whether the record of a committed offset can be read, found out without reading it.

Offsets are decoded when somebody asks for them (`offset_cache`); but a record that cannot be decoded is to be found
when its partition is loaded, as in Kafka. The values that are written today are known by a few of their bytes; any
other is decoded to see.
"""

from collections.abc import Iterable
from typing import Final

from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records.consumer_offsets import OffsetCommitValue
from ottla.kproto.internal_records.coordinator import parse_value

# Of version 4: version, offset, leader epoch; then the length of the metadata plus one, here in one byte.
_VERSION: Final = b"\0\4"
_METADATA_LENGTH: Final = 14
_METADATA: Final = 15
_LONG_METADATA: Final = 128
# Behind the metadata: the time of the commit, and how many tagged fields there are: none, or the topic id.
_TIME_BYTES: Final = 8
_TOPIC_ID_FIELD: Final = b"\1\0\x10"
_WITH_TOPIC_ID_BYTES: Final = len(_TOPIC_ID_FIELD) + 16


def check_offset(key: bytes, value: bytes | None) -> None:
    """Raise DecodeError if an offset's record cannot be read; without a value it is a tombstone."""
    topic_start, topic_end = topic_place(key)
    if not key[4:topic_end].isascii():
        try:
            key[4 : topic_start - 2].decode()
            key[topic_start:topic_end].decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"the key of an offset is malformed: {error}") from None
    if value is not None and not _fields_place(value):
        parse_value(OffsetCommitValue, value)


def topic_place(key: bytes) -> tuple[int, int]:
    """Where the topic is in a key: its type, a group, a topic, a partition, and nothing behind. Raises DecodeError."""
    try:
        topic_start = 6 + (key[2] << 8 | key[3])
        topic_end = topic_start + (key[topic_start - 2] << 8 | key[topic_start - 1])
        if topic_end + 4 == len(key) and not (key[2] | key[topic_start - 2]) & 0x80:
            return topic_start, topic_end
    except IndexError:
        pass
    raise DecodeError(f"the key of an offset is malformed, it has {len(key)} bytes")


def fixed_places(value: bytes) -> tuple[int, ...]:
    """The places by which a value of usual form is known; () for any other.

    What has this length and the same bytes there has the same form, if its metadata is text.
    """
    fields = _fields_place(value)
    if not fields:
        return ()
    return (0, 1, _METADATA_LENGTH, *range(fields, fields + (len(_TOPIC_ID_FIELD) if value[fields] else 1)))


def is_text(parts: Iterable[bytes]) -> bool:
    """Whether all of it is ASCII, which needs no further look."""
    return b"".join(parts).isascii()


def metadata_of(value: bytes) -> bytes:
    """The metadata in a value of usual form."""
    return value[_METADATA : _METADATA + value[_METADATA_LENGTH] - 1]


def _fields_place(value: bytes) -> int:
    """Where the tagged fields are in a value of usual form: version 4, short and plain metadata, at most a topic id.

    Zero for any other value.
    """
    if len(value) <= _METADATA or not value.startswith(_VERSION) or not 0 < value[_METADATA_LENGTH] < _LONG_METADATA:
        return 0
    metadata_end = _METADATA + value[_METADATA_LENGTH] - 1
    fields = metadata_end + _TIME_BYTES
    rest = len(value) - fields
    if rest == _WITH_TOPIC_ID_BYTES:
        usual = value.startswith(_TOPIC_ID_FIELD, fields)
    else:
        usual = rest == 1 and not value[fields]
    if usual and metadata_end > _METADATA:
        usual = value[_METADATA:metadata_end].isascii()
    return fields if usual else 0
