"""Which partitions records go to, for many at once: the choice of `ottla.kproto.partitioner`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ottla.kproto.partitioner import partition_for_key
from ottla.pipeline.encoder.records import content, lengths
from ottla.pipeline.encoder.varints import Ints

__all__ = ["partitions_for_keys"]

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
# Each word of the longest key costs a turn; few keys are so long, and these are hashed one by one.
_LONG_BYTES: Final = 512


def partitions_for_keys(keys: Any, count: int) -> Ints:
    """The partition of each key, of `count`; -1 where there is no key."""
    sizes = lengths(keys)
    starts = np.zeros(len(sizes), dtype=np.int64)
    np.cumsum(np.maximum(sizes, 0)[:-1], out=starts[1:])
    data = np.frombuffer(content(keys), dtype=np.uint8)
    short = np.flatnonzero((sizes >= 0) & (sizes <= _LONG_BYTES))
    found = np.full(len(sizes), -1, dtype=np.int64)
    found[short] = (_murmur2(data, starts[short], sizes[short]) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    for row in np.flatnonzero(sizes > _LONG_BYTES):
        found[row] = partition_for_key(data[starts[row] : starts[row] + sizes[row]].tobytes(), count)
    return found


def _murmur2(data: NDArray[np.uint8], starts: Ints, sizes: Ints) -> NDArray[np.uint32]:
    found = _SEED ^ sizes.astype(np.uint32)
    words = sizes >> 2
    left = np.flatnonzero(words > 0)
    index = 0
    while left.size:
        word = _little_endian(data, starts[left] + 4 * index, 4) * _M
        word ^= word >> np.uint32(24)
        found[left] = found[left] * _M ^ word * _M
        index += 1
        left = left[words[left] > index]
    for rest in (1, 2, 3):
        rows = np.flatnonzero(sizes & 3 == rest)
        found[rows] = (found[rows] ^ _little_endian(data, starts[rows] + 4 * words[rows], rest)) * _M
    found ^= found >> np.uint32(13)
    found *= _M
    return found ^ found >> np.uint32(15)


def _little_endian(data: NDArray[np.uint8], pos: Ints, size_bytes: int) -> NDArray[np.uint32]:
    found = np.zeros(len(pos), dtype=np.uint32)
    for index in range(size_bytes):
        found |= data[pos + index].astype(np.uint32) << np.uint32(8 * index)
    return found
