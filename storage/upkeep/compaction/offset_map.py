"""Key -> latest offset, in a fixed amount of memory (the part of Kafka's `SkimpyOffsetMap`).

A digest of 16 bytes stands for the key: 24 bytes a key, however long it is. BLAKE2 is used because two keys with the
same digest would be one to the cleaner, and with MD5 a producer could make such keys on purpose.
"""

from __future__ import annotations

import os
import struct
from array import array
from hashlib import blake2b

_DIGEST_BYTES = 16
_OFFSET_BYTES = 8
ENTRY_BYTES = _DIGEST_BYTES + _OFFSET_BYTES
"""What a slot takes."""

_EMPTY = -1
_HALVES = struct.Struct(">QQ")
_SALT_BYTES = 16


class OffsetMap:
    """A hash table with open addressing that never grows.

    `memory_bytes` is all it takes; ValueError if that is not enough for two keys. It is full when `load_factor` of its
    slots are taken: `put` then refuses keys that it does not hold yet.
    """

    __slots__ = ("_capacity", "_digests", "_hasher", "_offsets", "_size", "_slots", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9, salt: bytes | None = None) -> None:
        self._slots = _prime_not_above(memory_bytes // ENTRY_BYTES)
        self._capacity = int(self._slots * load_factor)
        if self._capacity < 2:
            raise ValueError(f"an offset map of {memory_bytes} bytes holds no keys")
        # Salted, so that nobody can choose keys that crowd into the same slots.
        self._hasher = blake2b(digest_size=_DIGEST_BYTES, salt=os.urandom(_SALT_BYTES) if salt is None else salt)
        self._digests = bytearray(self._slots * _DIGEST_BYTES)
        self._offsets = array("q", [_EMPTY]) * self._slots
        self._size = 0
        self.latest_offset = _EMPTY
        """The last offset that the map accounts for: every record from the first dirty one up to it has been noted.

        A pass begins with the offset before the first dirty one, so that old tombstones go even if nothing is dirty.
        """

    def __len__(self) -> int:
        return self._size

    def accounts_to(self, offset: int) -> None:
        """Every record up to an offset has been noted, or needs no note."""
        self.latest_offset = offset

    @property
    def capacity(self) -> int:
        """How many keys fit."""
        return self._capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Note that `key` has a record at `offset`, the highest so far; False if there is no room: nothing changed."""
        digest = self._digest(key)
        slot, found = self._find(digest)
        if not found:
            if self._size >= self._capacity:
                return False
            self._size += 1
            self._digests[slot * _DIGEST_BYTES : (slot + 1) * _DIGEST_BYTES] = digest
        self._offsets[slot] = offset
        self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """The highest offset noted for `key`, -1 if none."""
        slot, found = self._find(self._digest(key))
        return self._offsets[slot] if found else _EMPTY

    def clear(self) -> None:
        """Forget everything; the memory stays."""
        self._offsets = array("q", [_EMPTY]) * self._slots
        self._size = 0
        self.latest_offset = _EMPTY

    def _digest(self, key: bytes) -> bytes:
        hasher = self._hasher.copy()
        hasher.update(key)
        return hasher.digest()

    def _find(self, digest: bytes) -> tuple[int, bool]:
        """The slot of a digest, or the free one where it belongs. There always is a free one."""
        first, second = _HALVES.unpack(digest)
        slots = self._slots
        slot: int = first % slots
        offsets, digests = self._offsets, self._digests
        step = 0
        while offsets[slot] >= 0:
            start = slot * _DIGEST_BYTES
            if digests[start : start + _DIGEST_BYTES] == digest:
                return slot, True
            # Double hashing: the number of slots is prime, so that any step visits all of them.
            step = step or 1 + second % (slots - 1)
            slot = (slot + step) % slots
        return slot, False


def _prime_not_above(limit: int) -> int:
    for candidate in range(limit, 2, -1):
        if all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1)):
            return candidate
    return 2
