"""How coordinators keep their state in the records of a compacted topic.

A record's key is an int16 that says the record type, then the key struct in its only version. Its value is an int16
version, then the value struct in that version; a null value (a tombstone) removes what the key names. A reader skips
record types that it does not know: they come from a newer broker.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ottla.kproto import codec
from ottla.kproto.errors import DecodeError
from ottla.kproto.schema import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.kproto.types import Buffer

_INT16 = struct.Struct(">h")


class UnknownRecordTypeError(DecodeError):
    """The key is of a record type that is not known here; to be skipped."""

    def __init__(self, record_type: int) -> None:
        super().__init__(f"unknown coordinator record type {record_type}")
        self.record_type = record_type


class UnknownValueVersionError(DecodeError):
    """The key is known, but its value is of a version that is not."""

    def __init__(self, cls: type[CoordinatorValue], version: int) -> None:
        super().__init__(f"unknown version {version} of {cls.__name__}")
        self.version = version


class _CoordinatorStruct(Message):
    RECORD_TYPE: ClassVar[int] = -1

    def __init_subclass__(cls, *, record_type: int | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if record_type is not None:
            cls.RECORD_TYPE = record_type


class CoordinatorKey(_CoordinatorStruct):
    """Names one thing that a coordinator remembers."""


class CoordinatorValue(_CoordinatorStruct):
    """What a coordinator remembers of the thing that the key of the same record type names."""


V = TypeVar("V", bound=CoordinatorValue)


def build_key(key: CoordinatorKey) -> bytes:
    """The key of a record, its type in front."""
    return _INT16.pack(key.RECORD_TYPE) + codec.build(key, 0)


def build_value(value: CoordinatorValue, version: int) -> bytes:
    """The value of a record, its version in front. Raises EncodeError for a version that there is not."""
    body = codec.build(value, version)
    return _INT16.pack(version) + body


def parse_value(cls: type[V], buf: Buffer) -> V:
    """Read a value of which the type is known from its key. Raises UnknownValueVersionError, else DecodeError."""
    version = _prefix(buf)
    if not cls.VERSIONS.includes(version):
        raise UnknownValueVersionError(cls, version)
    return codec.parse(cls, version, buf, _INT16.size)


class RecordTypes:
    """The record types of one internal topic."""

    def __init__(self, classes: Iterable[type[_CoordinatorStruct]]) -> None:
        self._keys: dict[int, type[CoordinatorKey]] = {}
        self._values: dict[int, type[CoordinatorValue]] = {}
        for cls in classes:
            if issubclass(cls, CoordinatorKey):
                self._keys[cls.RECORD_TYPE] = cls
            elif issubclass(cls, CoordinatorValue):
                self._values[cls.RECORD_TYPE] = cls

    def parse_key(self, buf: Buffer) -> CoordinatorKey:
        """Read a key. Raises UnknownRecordTypeError for a type of a newer broker, else DecodeError."""
        record_type = _prefix(buf)
        cls = self._keys.get(record_type)
        if cls is None:
            raise UnknownRecordTypeError(record_type)
        return codec.parse(cls, 0, buf, _INT16.size)

    def parse(self, key: Buffer, value: Buffer | None) -> tuple[CoordinatorKey, CoordinatorValue | None]:
        """Read a whole record; the value of a tombstone is None. Raises what `parse_key` and `parse_value` do."""
        parsed_key = self.parse_key(key)
        if value is None:
            return parsed_key, None
        return parsed_key, parse_value(self._values[parsed_key.RECORD_TYPE], value)


def _prefix(buf: Buffer) -> int:
    if len(buf) < _INT16.size:
        raise DecodeError("a coordinator record must start with two bytes of type or version")
    (prefix,) = _INT16.unpack_from(buf)
    found: int = prefix
    return found
