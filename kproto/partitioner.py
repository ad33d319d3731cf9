"""Which partition a record goes to: the Java client's choice, so that keys stay where other producers put them."""

from __future__ import annotations

from typing import Final

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed that Kafka's clients use."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a keyed record."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
