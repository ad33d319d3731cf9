"""Zigzag varints of many rows at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Ints", "varint_sizes", "varints"]

Ints = NDArray[np.int64]

_BITS: Final = 7
_MORE: Final = np.uint64(0x80)


def varint_sizes(numbers: Ints) -> Ints:
    """How many bytes each number takes."""
    raw = _zigzag(numbers)
    sizes = np.ones(len(raw), dtype=np.int64)
    for index in range(1, _width(raw)):
        sizes += raw >= np.uint64(1 << _BITS * index)
    return sizes


def varints(*columns: Ints) -> Any:
    """A binary array: in each row the numbers that the columns have there, one behind the other."""
    raws = [_zigzag(numbers) for numbers in columns]
    widths = [_width(raw) for raw in raws]
    rows = len(raws[0])
    table = np.empty((rows, sum(widths)), dtype=np.uint8)
    used = np.empty(table.shape, dtype=np.bool_)
    at = 0
    for raw, width in zip(raws, widths, strict=True):
        for index in range(width):
            rest = raw >> np.uint64(_BITS * index)
            has_more = rest > 0x7F
            table[:, at] = (rest & np.uint64(0x7F)) | (has_more * _MORE)
            used[:, at] = True if index == 0 else rest > 0
            at += 1
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    data = table.ravel() if used.all() else table[used]
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _zigzag(numbers: Ints) -> NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _width(raw: NDArray[np.uint64]) -> int:
    return max(1, -(-int(raw.max(initial=0)).bit_length() // _BITS))
