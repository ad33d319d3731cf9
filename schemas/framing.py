"""How Confluent's serializers begin a value: a zero byte and the schema's id, four bytes big-endian.

Protobuf goes on with which of the schema's messages it is: how many numbers follow, and the numbers, each a message's
place in the file or in the message before, as zigzag varints. A single zero is short for the file's first message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.schemas.errors import ValueMismatchError

HEADER_SIZE_BYTES: Final = 5
_MAGIC: Final = 0
_MAX_INDEXES: Final = 100


def schema_id(value: bytes | memoryview) -> int | None:
    """The id that a value begins with; None if it begins with none."""
    if len(value) < HEADER_SIZE_BYTES or value[0] != _MAGIC:
        return None
    return int.from_bytes(value[1:HEADER_SIZE_BYTES], "big")


def framed(number: int, body: bytes) -> bytes:
    """A value with its schema's id before it."""
    return b"\x00" + number.to_bytes(4, "big") + body


def split_indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """Which message a Protobuf value is, and where its bytes begin. Raises ValueMismatchError."""
    count, position = _varint(body, 0)
    if not 0 <= count <= _MAX_INDEXES:
        raise ValueMismatchError("it does not say which message of its schema it is")
    if count == 0:
        return (0,), position
    indexes: list[int] = []
    for _ in range(count):
        index, position = _varint(body, position)
        indexes.append(index)
    return tuple(indexes), position


def joined_indexes(indexes: Sequence[int]) -> bytes:
    """The bytes that say which message a Protobuf value is."""
    if tuple(indexes) == (0,):
        return b"\x00"
    return b"".join(_written(number) for number in (len(indexes), *indexes))


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
    raise ValueMismatchError("it does not say which message of its schema it is")


def _written(number: int) -> bytes:
    rest, written = number << 1, bytearray()
    while rest >= 0x80:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)
