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


def read_varints(data: Bytes, pos: Ints, *, is_long: bool = False) -> tuple[Ints, Ints]:
    """The signed numbers that begin at `pos`, and the positions behind them.

    Raises CorruptRecordError for one that is too long for its 32 or, with `is_long`, 64 bits, and IndexError for one
    that ends beyond the data.
    """
    first = data[pos]
    raw = first.astype(np.uint64)
    following = pos + 1
    more = np.flatnonzero(first >= 0x80)
    if more.size:
        _read_on(data, raw, following, more, _VARLONG_BYTES if is_long else _VARINT_BYTES)
        if not is_long and bool((raw[more] >> np.uint64(32)).any()):
            raise CorruptRecordError("a varint exceeds 32 bits")
    signed = (raw >> np.uint64(1)).view(np.int64)
    signed ^= -(raw & np.uint64(1)).view(np.int64)
    return signed, following


def _read_on(data: Bytes, raw: NDArray[np.uint64], following: Ints, more: Ints, max_bytes: int) -> None:
    """Add the further bytes of the numbers at the places `more`."""
    raw[more] &= np.uint64(0x7F)
    for index in range(1, max_bytes):
        byte = data[following[more]]
        following[more] += 1
        if index == _VARLONG_BYTES - 1 and bool((byte & 0x7E).any()):
            raise CorruptRecordError("a varlong exceeds 64 bits")
        raw[more] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
        more = more[byte >= 0x80]
        if not more.size:
            return
    raise CorruptRecordError("a varint is too long")
