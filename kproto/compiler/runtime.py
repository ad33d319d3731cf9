"""The names that generated parsers and builders see: the rare cases, and what is too long to be inlined."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import lru_cache
from struct import pack, unpack_from
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import UUID

from ottla.kproto.compiler.layout import MAX_STRING_SIZE, MAX_TAGGED_FIELDS, STEP_ELEMENTS
from ottla.kproto.errors import DecodeError, EncodeError
from ottla.kproto.schema import ZERO_UUID, TaggedField

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer

__all__ = ["pack", "unpack_from"]

new: Final = object.__new__

ONE_BYTE: Final = tuple(bytes([value]) for value in range(128))
"""The varints of one byte."""


def truncated(what: str) -> NoReturn:
    raise DecodeError(f"{what} is longer than the bytes that are left")


def too_many(what: str, count: int, most: int) -> NoReturn:
    raise DecodeError(f"{what} has {count} elements, more than {most}")


def null(what: str) -> NoReturn:
    raise DecodeError(f"{what} must not be null")


def too_long(what: str) -> NoReturn:
    raise DecodeError(f"{what} is longer than {MAX_STRING_SIZE} bytes")


def misplaced_tag(tag: int) -> NoReturn:
    raise DecodeError(f"tagged field {tag} is repeated or out of order")


def wrong_tag_size(what: str) -> NoReturn:
    raise DecodeError(f"the tagged field {what} does not have the size that it claims")


def rest_of_uvarint(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose first byte, above 127, was read already."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        if shift == 28 and byte > 0x0F:
            raise DecodeError("a varint does not fit in 32 bits")
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, pos
        shift += 7


def rest_of_tag_count(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """`rest_of_uvarint` for a number of tagged fields."""
    count, pos = rest_of_uvarint(buf, pos, first)
    if count > MAX_TAGGED_FIELDS:
        too_many("a section of tagged fields", count, MAX_TAGGED_FIELDS)
    return count, pos


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    first = buf[pos]
    return (first, pos + 1) if first < 128 else rest_of_uvarint(buf, pos + 1, first)


def read_unknown_tags(
    buf: Buffer, pos: int, count: int, size: int
) -> tuple[tuple[TaggedField, ...], int]:  # fmt: skip
    """Keep the tagged fields of a struct that declares none in this version. `count` is its first byte."""
    if not count:
        return (), pos
    steps = read_tags_in_steps(buf, pos, count, size, [])
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[tuple[TaggedField, ...], int] = end.value
            return found


def read_tags_in_steps(
    buf: Buffer, pos: int, count: int, size: int, begun: list[list[Any]]
) -> Generator[None, None, tuple[tuple[TaggedField, ...], int]]:
    """`read_unknown_tags` with stops."""
    if count > 127:
        count, pos = rest_of_tag_count(buf, pos, count)
    fields: list[TaggedField] = []
    begun.append(fields)
    last = -1
    for number in range(1, count + 1):
        tag, pos = read_uvarint(buf, pos)
        length, pos = read_uvarint(buf, pos)
        if tag <= last:
            misplaced_tag(tag)
        last = tag
        end = pos + length
        if end > size:
            truncated("a tagged field")
        fields.append(TaggedField(tag, bytes(buf[pos:end])))
        pos = end
        if not number & (STEP_ELEMENTS - 1):
            yield
    return tuple(fields), pos


def unpack_in_steps(
    formats: str, size_bytes: int, buf: Buffer, pos: int, count: int, begun: list[list[Any]]
) -> Generator[None, None, list[Any]]:
    """An array of `count` values of one fixed size, with stops."""
    values: list[Any] = []
    begun.append(values)
    for first in range(0, count, STEP_ELEMENTS):
        some = min(STEP_ELEMENTS, count - first)
        at = pos + first * size_bytes
        if formats == "16s":
            values += [uuid_of(bytes(buf[at + i : at + i + 16])) for i in range(0, some * 16, 16)]
        else:
            values += unpack_from(f">{some}{formats}", buf, at)
        if some == STEP_ELEMENTS:
            yield
    return values


def pack_in_steps(formats: str, values: Sequence[Any], write: Callable[[bytes], object]) -> Generator[None, None, None]:
    """Write an array of values of one fixed size, with stops."""
    for first in range(0, len(values), STEP_ELEMENTS):
        some = values[first : first + STEP_ELEMENTS]
        write(pack(f">{len(some)}{formats}", *some))
        if len(some) == STEP_ELEMENTS:
            yield


@lru_cache(maxsize=1024)
def uuid_of(raw: bytes) -> UUID:
    """Topic ids repeat from request to request; making a UUID costs ten times as much as finding one."""
    return UUID(bytes=raw) if any(raw) else ZERO_UUID


def not_in_version(what: str) -> NoReturn:
    raise EncodeError(f"{what} is set but does not exist in this version")


def tags_not_in_version(what: str) -> NoReturn:
    raise EncodeError(f"{what} has tagged fields but this version has none")


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(value: int) -> bytes:
    """The prefix of a compact string that is too long for one byte."""
    if value > MAX_STRING_SIZE + 1:
        raise EncodeError(f"a string is longer than {MAX_STRING_SIZE} bytes")
    return uvarint(value)


def tag_section(
    known: Iterable[tuple[int, bytes]], unknown: Iterable[TaggedField], known_tags: frozenset[int]
) -> bytes:  # fmt: skip
    """All tagged fields of a struct in ascending order, after their number."""
    fields = [*known]
    for tag, data in unknown:
        if tag in known_tags:
            raise EncodeError(f"tag {tag} is declared and cannot be an unknown tagged field")
        fields.append((tag, data))
    fields.sort(key=lambda field: field[0])
    if len({tag for tag, _ in fields}) != len(fields):
        raise EncodeError("a tag occurs twice")
    pieces = [uvarint(len(fields))]
    for tag, data in fields:
        if not 0 <= tag < 1 << 31:
            raise EncodeError(f"tag {tag} is out of range")
        pieces += [uvarint(tag), uvarint(len(data)), data]
    return b"".join(pieces)
