"""Kafka's primitive types as `construct` pieces, in the classic and in the compact (flexible, KIP-482) encoding.

They are the definition of the encoding in its most readable form, and what a tool that wants another structure of
Kafka's builds on. Serving uses code that is compiled from the same declarations (`ottla.kproto.codec`).
"""

# ruff: noqa: SLF001 - construct's interface for new types is its underscored methods

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

import construct
from construct import Adapter, Construct

from ottla.kproto.text import ERRORS

Buffer = bytes | bytearray | memoryview
"""What bytes are read from."""


class FilePart(Protocol):
    """Bytes of a message that stay in a file until they are sent. Only what sends them knows how."""

    def __len__(self) -> int: ...


Part = Buffer | FilePart
"""A piece of an encoded message: its bytes, or where they are."""

Int8 = construct.Int8sb
Int16 = construct.Int16sb
UInt16 = construct.Int16ub
Int32 = construct.Int32sb
UInt32 = construct.Int32ub
Int64 = construct.Int64sb
Float64 = construct.Float64b

MAX_STRING_SIZE = 0x7FFF
MAX_ARRAY_LENGTH = 1_000_000
MAX_TAGGED_FIELDS = 10_000


class MalformedError(construct.ConstructError):  # type: ignore[misc]
    """The value breaks a rule of the protocol."""


def _read(stream: io.BytesIO, size: int, path: str) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise MalformedError(f"{size} bytes are needed and {len(data)} are left", path=path)
    return data


class _Boolean(Adapter):  # type: ignore[misc]
    """One byte; everything but zero is true."""

    def _decode(self, obj: int, context: Any, path: str) -> bool:
        return obj != 0

    def _encode(self, obj: bool, context: Any, path: str) -> int:
        return int(obj)


class _Uuid(Adapter):  # type: ignore[misc]
    """Sixteen bytes, most significant first."""

    def _decode(self, obj: bytes, context: Any, path: str) -> UUID:
        return UUID(bytes=obj)

    def _encode(self, obj: UUID, context: Any, path: str) -> bytes:
        return obj.bytes


class _UnsignedVarint(Construct):  # type: ignore[misc]
    """Seven bits a byte, the lowest first; 32 bits in at most five bytes."""

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = _read(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 32:
                    break
                return value
        raise MalformedError("a varint does not fit in 32 bits", path=path)

    def _build(self, obj: int, stream: io.BytesIO, context: Any, path: str) -> int:
        if not 0 <= obj < 1 << 32:
            raise MalformedError(f"{obj} does not fit in 32 bits", path=path)
        rest = obj
        while rest > 0x7F:
            stream.write(bytes([rest & 0x7F | 0x80]))
            rest >>= 7
        stream.write(bytes([rest]))
        return obj


class _OffByOne(Adapter):  # type: ignore[misc]
    """A compact length: the varint is one more than the length, and zero stands for null (-1)."""

    def _decode(self, obj: int, context: Any, path: str) -> int:
        return obj - 1

    def _encode(self, obj: int, context: Any, path: str) -> int:
        return obj + 1


Boolean = _Boolean(Int8)
Uuid = _Uuid(construct.Bytes(16))
UnsignedVarint = _UnsignedVarint()
CompactLength = _OffByOne(UnsignedVarint)


class _Sized(Construct):  # type: ignore[misc]
    """What starts with a length, of which a negative one means null."""

    def __init__(self, length: Construct, *, nullable: bool) -> None:
        super().__init__()
        self._length = length
        self._nullable = nullable

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        length = self._length._parsereport(stream, context, path)
        if length < 0:
            if not self._nullable:
                raise MalformedError("null is not allowed", path=path)
            return None
        if length > len(stream.getbuffer()) - stream.tell():
            raise MalformedError(f"a length of {length} is beyond the end", path=path)
        return self._parse_content(length, stream, context, path)

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> Any:
        if obj is None and not self._nullable:
            raise MalformedError("null is not allowed", path=path)
        self._build_content(obj, stream, context, path)
        return obj

    def _parse_content(self, length: int, stream: io.BytesIO, context: Any, path: str) -> Any:
        raise TypeError("abstract")

    def _build_content(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> None:
        raise TypeError("abstract")


class Bytes(_Sized):
    """A byte string."""

    def _parse_content(self, length: int, stream: io.BytesIO, context: Any, path: str) -> bytes:
        return _read(stream, length, path)

    def _build_content(self, obj: bytes | None, stream: io.BytesIO, context: Any, path: str) -> None:
        self._length._build(-1 if obj is None else len(obj), stream, context, path)
        stream.write(b"" if obj is None else obj)


class String(Bytes):
    """A UTF-8 string of at most 32,767 bytes; what is not UTF-8 becomes U+FFFD, as for Java."""

    def _parse_content(self, length: int, stream: io.BytesIO, context: Any, path: str) -> Any:
        if length > MAX_STRING_SIZE:
            raise MalformedError(f"a string of {length} bytes", path=path)
        return _read(stream, length, path).decode("utf-8", ERRORS)

    def _build_content(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> None:
        encoded = None if obj is None else obj.encode()
        if encoded is not None and len(encoded) > MAX_STRING_SIZE:
            raise MalformedError(f"a string of {len(encoded)} bytes", path=path)
        super()._build_content(encoded, stream, context, path)


class Array(_Sized):
    """Elements of one type after their number. Every element takes a byte or more."""

    def __init__(self, length: Construct, element: Construct, *, nullable: bool) -> None:
        super().__init__(length, nullable=nullable)
        self._element = element

    def _parse_content(self, length: int, stream: io.BytesIO, context: Any, path: str) -> list[Any]:
        if length > MAX_ARRAY_LENGTH:
            raise MalformedError(f"an array of {length} elements", path=path)
        return [self._element._parsereport(stream, context, f"{path}[{i}]") for i in range(length)]

    def _build_content(self, obj: list[Any] | None, stream: io.BytesIO, context: Any, path: str) -> None:
        self._length._build(-1 if obj is None else len(obj), stream, context, path)
        for index, item in enumerate(obj or ()):
            self._element._build(item, stream, context, f"{path}[{index}]")


class NullableStruct(Construct):  # type: ignore[misc]
    """A struct after a byte that is 1, or `null` for null: -1, but 0 in a tagged field."""

    def __init__(self, subcon: Construct, null: int = -1) -> None:
        super().__init__()
        self._subcon = subcon
        self._null = null

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        present = Int8._parsereport(stream, context, path) > self._null
        return self._subcon._parsereport(stream, context, path) if present else None

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> Any:
        Int8._build(self._null if obj is None else 1, stream, context, path)
        if obj is not None:
            self._subcon._build(obj, stream, context, path)
        return obj


class TaggedFields(Construct):  # type: ignore[misc]
    """The tagged fields of a struct: number, then tag, size and content of each, in ascending order of tags.

    Parses to and builds from a dict of tag to value; what `known` has no type for stays bytes.
    """

    def __init__(self, known: Mapping[int, Construct]) -> None:
        super().__init__()
        self._known = known

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        last = -1
        count = UnsignedVarint._parsereport(stream, context, path)
        if count > MAX_TAGGED_FIELDS:
            raise MalformedError(f"{count} tagged fields", path=path)
        for _ in range(count):
            tag = UnsignedVarint._parsereport(stream, context, path)
            if tag <= last:
                raise MalformedError(f"tag {tag} is repeated or out of order", path=path)
            last = tag
            data = _read(stream, UnsignedVarint._parsereport(stream, context, path), path)
            known = self._known.get(tag)
            fields[tag] = data if known is None else parse_whole(known, data, f"{path} -> tag {tag}")
        return fields

    def _build(self, obj: Mapping[int, Any], stream: io.BytesIO, context: Any, path: str) -> Any:
        UnsignedVarint._build(len(obj), stream, context, path)
        for tag, value in sorted(obj.items()):
            known = self._known.get(tag)
            data = value if known is None else known.build(value)
            UnsignedVarint._build(tag, stream, context, path)
            UnsignedVarint._build(len(data), stream, context, path)
            stream.write(data)
        return obj


def parse_whole(subcon: Construct, data: bytes, path: str) -> Any:
    """Parse bytes that must hold one value and nothing after it."""
    stream = io.BytesIO(data)
    try:
        value = subcon.parse_stream(stream)
    except UnicodeDecodeError as error:
        raise MalformedError(f"a string is not UTF-8: {error.reason}", path=path) from error
    if stream.tell() != len(data):
        raise MalformedError(f"{len(data) - stream.tell()} bytes are left over", path=path)
    return value
