"""Pooled memory in fixed sizes.

Small requests use Redpanda's table of fifteen sizes; above it come Mofka's tiers of `first_size_bytes * multiple^k`. A
pool that reuses its memory saves page faults: to fill a fresh MiB costs 256 of them and 0.37 ms, to fill one that has
been used before 0.02 ms (`benchmarks/steps/storage_parts.py`).
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ottla.storage.memory.iobuf import Fragment
from ottla.storage.memory.unmapping import Unmapping


def _small_sizes() -> tuple[int, ...]:
    """Redpanda's allocation table: 512 bytes, then half as much again each step, up to 128 KiB."""
    sizes = [512]
    while sizes[-1] < 128 * 1024:
        sizes.append(min((sizes[-1] * 3 + 1) // 2, 128 * 1024))
    return tuple(sizes)


SMALL_SIZES = _small_sizes()
# Unmapping takes some 0.3 ms a MiB.
_UNMAPPED_AT_ONCE_BYTES = 1_048_576
SCRATCH_BYTES = 64 * 1024
POISON = b"\xdb"
"""What a poisoning pool fills returned memory with."""


@dataclass(slots=True, frozen=True)
class PoolConfig:
    """The shape of a buffer pool.

    `num_tiers` tiers of `first_size_bytes * multiple**k` stand above the small sizes, each with `num_buffers`
    preallocated (0: start empty, grow on demand). At most `max_retained_bytes` of unused memory is kept: by default
    enough for the largest answer to a client's default `fetch.max.bytes` of 50 MiB, whose memory would be new each time
    otherwise. `poison` overwrites memory that comes back, so that a view which outlived its reference shows it: for
    tests.
    """

    first_size_bytes: int = 256 * 1024
    multiple: int = 2
    num_tiers: int = 7
    num_buffers: int = 0
    max_retained_bytes: int = 64 * 1024 * 1024
    poison: bool = False

    def __post_init__(self) -> None:
        if self.first_size_bytes <= SMALL_SIZES[-1] or self.multiple < 2 or self.num_tiers < 0:
            raise ValueError("tiers must begin above the small sizes and grow")
        if self.num_buffers < 0 or self.max_retained_bytes < 0:
            raise ValueError("counts and sizes must not be negative")


@dataclass(slots=True)
class PoolCounters:
    """What a pool has done since it was made, and what it holds now."""

    acquired: int = 0
    """Fragments handed out."""
    reused: int = 0
    """… of those, how many came from retained memory."""
    grown: int = 0
    """Buffers allocated, by preallocation or on demand."""
    freed: int = 0
    """Buffers given back to the allocator."""
    in_use: int = 0
    """Fragments out now."""
    in_use_bytes: int = 0
    """Memory in use now, in whole buffers."""
    retained_bytes: int = 0
    """Unused memory kept for reuse now."""


class _Tier:
    """The free buffers of one size. `spare` of them have not been needed since the pool was last trimmed."""

    __slots__ = ("free", "last_used", "reclaim", "size_bytes", "spare")

    def __init__(self, size_bytes: int, take_back: Callable[[_Tier, memoryview], None]) -> None:
        self.size_bytes = size_bytes
        self.free: list[memoryview] = []
        self.last_used = 0
        self.spare = 0
        self.reclaim = partial(take_back, self)


class BufferPool:
    """Hands out fragments of at least the size asked for, and keeps what comes back within a bound.

    Free buffers are used last in, first out, so that the warm ones are used again. A request above the
    largest tier gets memory of its own, which is freed on return. Memory that comes back beyond
    `max_retained_bytes` displaces free buffers of sizes that were asked for longer ago, or is freed itself;
    memory in use is never touched. Not thread-safe: acquire and release on the event loop's thread.
    """

    __slots__ = ("_sizes", "_tick", "_tiers", "_unmapping", "config", "counters", "scratch")

    def __init__(self, config: PoolConfig | None = None) -> None:
        self.config = config = config or PoolConfig()
        self.counters = PoolCounters()
        self._sizes = [
            *SMALL_SIZES,
            *(config.first_size_bytes * config.multiple**k for k in range(config.num_tiers)),
        ]
        self._tiers = [_Tier(size_bytes, self._take_back) for size_bytes in self._sizes]
        self._tick = 0
        #: For what is looked at in the very step that fills it; nobody holds it.
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._unmapping = Unmapping()
        for tier in self._tiers[len(SMALL_SIZES) :]:
            for _ in range(config.num_buffers):
                self._retain(tier, self._allocate(tier.size_bytes))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the buffers this pool keeps, ascending."""
        return tuple(self._sizes)

    def acquire(self, size_bytes: int) -> Fragment:
        """A fragment with one reference, whose memory has at least `size_bytes` of undefined content."""
        counters = self.counters
        counters.acquired += 1
        counters.in_use += 1
        index = bisect_left(self._sizes, size_bytes)
        if index == len(self._sizes):
            counters.in_use_bytes += size_bytes
            return Fragment(self._allocate(size_bytes), self._take_back_large)
        tier = self._tiers[index]
        self._tick = tier.last_used = self._tick + 1
        counters.in_use_bytes += tier.size_bytes
        if tier.free:
            counters.reused += 1
            counters.retained_bytes -= tier.size_bytes
            memory = tier.free.pop()
            if len(tier.free) < tier.spare:
                tier.spare = len(tier.free)
            return Fragment(memory, tier.reclaim)
        return Fragment(self._allocate(tier.size_bytes), tier.reclaim)

    def trim(self) -> None:
        """Free what has not been needed since the last call: of each size the least number that lay free meanwhile.

        Called now and then it gives back what a burst has made the pool keep, and nothing that a steady load uses.
        """
        for tier in self._tiers:
            for _ in range(tier.spare):
                self._free_one(tier)
            tier.spare = len(tier.free)

    def _allocate(self, size_bytes: int) -> memoryview:
        self.counters.grown += 1
        if size_bytes <= SMALL_SIZES[-1]:
            return memoryview(bytearray(size_bytes))
        # A mapping costs memory only where it is written: a client that claims a large request and sends nothing costs
        # nothing, and nobody waits for the zeroing of what is about to be overwritten.
        return memoryview(mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def _retain(self, tier: _Tier, memory: memoryview) -> None:
        tier.free.append(memory)
        self.counters.retained_bytes += tier.size_bytes

    def _returned(self, size_bytes: int) -> None:
        self.counters.in_use -= 1
        self.counters.in_use_bytes -= size_bytes

    def _take_back(self, tier: _Tier, memory: memoryview) -> None:
        self._returned(tier.size_bytes)
        if self.config.poison:
            memory[:] = POISON * len(memory)
        room_bytes = self.config.max_retained_bytes - tier.size_bytes
        while self.counters.retained_bytes > room_bytes:
            coldest = self._coldest_tier() if self.counters.retained_bytes else tier
            if coldest.last_used >= tier.last_used:
                self._free(memory)
                return
            self._free_one(coldest)
        self._retain(tier, memory)

    def _take_back_large(self, memory: memoryview) -> None:
        self._returned(memory.nbytes)
        if self.config.poison:
            memory[:] = POISON * len(memory)
        self._free(memory)

    def _coldest_tier(self) -> _Tier:
        return min((tier for tier in self._tiers if tier.free), key=lambda tier: tier.last_used)

    def _free_one(self, tier: _Tier) -> None:
        memory = tier.free.pop(0)
        tier.spare = min(tier.spare, len(tier.free))
        self.counters.retained_bytes -= tier.size_bytes
        self._free(memory)

    def _free(self, memory: memoryview) -> None:
        self.counters.freed += 1
        if memory.nbytes > _UNMAPPED_AT_ONCE_BYTES and not self.config.poison:
            self._unmapping.free(memory)
