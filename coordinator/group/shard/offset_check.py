"""Whether the record of a committed offset can be decoded, found out without decoding it.

Offsets are decoded when somebody asks for them (`offset_cache`), but a record that cannot be decoded has to be found
when its partition is loaded, as in Kafka. Values as they are written today are recognized by a few of their bytes; any
other value is decoded.
"""

from collections.abc import Iterable
from typing import Final

from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records.consumer_offsets import OffsetCommitValue
from ottla.kproto.internal_records.coordinator import parse_value
from ottla.kproto.text import ERRORS

# Of version 4: version, offset, leader epoch; then the length of the metadata plus one, here in one byte.
_VERSION: Final = b"\0\4"
_METADATA_LENGTH: Final = 14
_METADATA: Final = 15
_LONG_METADATA: Final = 128
# After the metadata: the time of the commit, and how many tagged fields there are: none, or the topic id.
_TIME_BYTES: Final = 8
_TOPIC_ID_FIELD: Final = b"\1\0\x10"
_WITH_TOPIC_ID_BYTES: Final = len(_TOPIC_ID_FIELD) + 16


def check_offset(key: bytes, value: bytes | None) -> None:
    """Raise DecodeError if an offset's record cannot be decoded. Without a value it is a tombstone."""
    topic_start, topic_end = topic_place(key)
    if not key[4:topic_end].isascii():
        try:
            key[4 : topic_start - 2].decode("utf-8", ERRORS)
            key[topic_start:topic_end].decode("utf-8", ERRORS)
        except UnicodeDecodeError as error:
            raise DecodeError(f"the key of an offset is malformed: {error}") from None
    if value is not None and not _fields_place(value):
        parse_value(OffsetCommitValue, value)


def topic_place(key: bytes) -> tuple[int, int]:
    """The place of the topic in a key, which is its type, a group, a topic and a partition. Raises DecodeError."""
    try:
        topic_start = 6 + (key[2] << 8 | key[3])
        topic_end = topic_start + (key[topic_start - 2] << 8 | key[topic_start - 1])
        if topic_end + 4 == len(key) and not (key[2] | key[topic_start - 2]) & 0x80:
            return topic_start, topic_end
    except IndexError:
        pass
    raise DecodeError(f"the key of an offset is malformed, it has {len(key)} bytes")


def fixed_places(value: bytes) -> tuple[int, ...]:
    """The places of the bytes by which a value of the usual form is recognized; () for any other value.

    A value of the same length with the same bytes there has the same form, if its metadata is ASCII.
    """
    fields = _fields_place(value)
    if not fields:
        return ()
    return (0, 1, _METADATA_LENGTH, *range(fields, fields + (len(_TOPIC_ID_FIELD) if value[fields] else 1)))


def is_text(parts: Iterable[bytes]) -> bool:
    """Whether all of it is ASCII, and so needs no further check."""
    return b"".join(parts).isascii()


def metadata_of(value: bytes) -> bytes:
    """The metadata in a value of the usual form."""
    return value[_METADATA : _METADATA + value[_METADATA_LENGTH] - 1]


def _fields_place(value: bytes) -> int:
    """The place of the tagged fields in a value of the usual form: version 4, short ASCII metadata, at most a topic id.

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
