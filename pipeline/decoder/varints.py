"""Zigzag varints at many places at once."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ottla.kproto.records import CorruptRecordError

__all__ = ["Bytes", "Ints", "read_varints"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

_VARINT_BYTES: Final = 5
_VARLONG_BYTES: Final = 10
# The number that a varint's first byte begins, continuation bit ignored. A second byte `m` is then simply `^ m << 6`.
_ZIGZAG: Final[Ints] = np.array([(byte & 127) >> 1 ^ -(byte & 1) for byte in range(256)], dtype=np.int64)


def read_varints(data: Bytes, pos: Ints, *, is_long: bool = False) -> tuple[Ints, Ints]:
    """The signed numbers that begin at `pos`, and the position after them.

    Raises CorruptRecordError for one that is too long for its 32 or, with `is_long`, 64 bits, and IndexError for one
    that ends beyond the data.
    """
    first = data.take(pos)
    numbers = _ZIGZAG.take(first)
    more = first >= 0x80
    following = pos + 1
    if not more.any():
        return numbers, following
    if int(following.max()) >= len(data) and bool((more & (following >= len(data))).any()):
        raise IndexError("a varint ends beyond the data")
    second = data.take(following, mode="clip")
    second *= more
    numbers ^= (second & 0x7F).astype(np.int64) << 6
    following += more
    longer = np.flatnonzero(second >= 0x80)
    if longer.size:
        numbers[longer], following[longer] = _read_whole(
            data, pos[longer], _VARLONG_BYTES if is_long else _VARINT_BYTES
        )
    return numbers, following


def _read_whole(data: Bytes, pos: Ints, max_bytes: int) -> tuple[Ints, Ints]:
    """The same byte by byte, for numbers of three bytes and more."""
    raw = np.zeros(len(pos), dtype=np.uint64)
    following = pos.copy()
    left = np.arange(len(pos))
    for index in range(max_bytes):
        byte = data[following[left]]
        following[left] += 1
        if index == _VARLONG_BYTES - 1 and bool((byte & 0x7E).any()):
            raise CorruptRecordError("a varlong exceeds 64 bits")
        raw[left] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
        left = left[byte >= 0x80]
        if not left.size:
            break
    else:
        raise CorruptRecordError("a varint is too long")
    if max_bytes == _VARINT_BYTES and bool((raw >> np.uint64(32)).any()):
        raise CorruptRecordError("a varint exceeds 32 bits")
    numbers = (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)
    return numbers, following
