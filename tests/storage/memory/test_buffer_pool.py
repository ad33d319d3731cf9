"""Pools against a model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.storage.memory.buffer_pool import POISON, SMALL_SIZES, BufferPool, PoolConfig
from ottla.storage.memory.iobuf import Fragment

KIB = 1024


class TestSizes:
    def test_the_small_sizes_are_the_seeds_table(self) -> None:
        assert SMALL_SIZES == (
            512, 768, 1152, 1728, 2592, 3888, 5832, 8748, 13122, 19683, 29525, 44288, 66432, 99648, 131072,
        )  # fmt: skip

    def test_tiers_stand_above_them(self) -> None:
        pool = BufferPool(PoolConfig(first_size_bytes=200_000, multiple=3, num_tiers=3))
        assert pool.sizes == (*SMALL_SIZES, 200_000, 600_000, 1_800_000)

    @given(st.integers(0, 3_000_000))
    def test_a_request_gets_the_smallest_size_that_holds_it(self, size_bytes: int) -> None:
        pool = BufferPool(PoolConfig(num_tiers=3))
        fragment = pool.acquire(size_bytes)
        fitting = [size for size in pool.sizes if size >= size_bytes]
        assert fragment.capacity_bytes == (fitting[0] if fitting else size_bytes)
        assert not fragment.memory.readonly

    @pytest.mark.parametrize(
        "make",
        [
            lambda: PoolConfig(first_size_bytes=131_072),
            lambda: PoolConfig(multiple=1),
            lambda: PoolConfig(num_tiers=-1),
            lambda: PoolConfig(num_buffers=-1),
        ],
    )
    def test_a_shape_that_makes_no_sense_is_refused(self, make: Callable[[], PoolConfig]) -> None:
        with pytest.raises(ValueError, match="must"):
            make()


class TestPool:
    def test_memory_is_used_again_the_warmest_first(self) -> None:
        pool = BufferPool()
        first, second = pool.acquire(600), pool.acquire(600)
        memory = second.memory
        first.release()
        second.release()
        assert pool.acquire(700).memory is memory
        assert (pool.counters.acquired, pool.counters.reused, pool.counters.grown) == (3, 1, 2)

    def test_tiers_are_preallocated(self) -> None:
        pool = BufferPool(PoolConfig(first_size_bytes=200_000, num_tiers=2, num_buffers=3))
        assert pool.counters.retained_bytes == 3 * 200_000 + 3 * 400_000
        fragments = [pool.acquire(150_000) for _ in range(4)]
        assert (pool.counters.reused, pool.counters.grown) == (3, 6 + 1)
        for fragment in fragments:
            fragment.release()
        assert pool.counters.in_use == 0

    def test_requests_above_the_largest_tier_are_not_kept(self) -> None:
        pool = BufferPool(PoolConfig(num_tiers=1))
        fragment = pool.acquire(1_000_000)
        assert pool.counters.in_use_bytes == 1_000_000
        fragment.release()
        assert (pool.counters.retained_bytes, pool.counters.freed, pool.counters.in_use_bytes) == (0, 1, 0)

    def test_memory_beyond_the_bound_displaces_sizes_not_asked_for(self) -> None:
        pool = BufferPool(PoolConfig(max_retained_bytes=2048))
        small = [pool.acquire(512) for _ in range(4)]
        for fragment in small:
            fragment.release()
        large = pool.acquire(1728)
        large.release()
        assert pool.counters.retained_bytes == 1728
        assert pool.counters.freed == 4
        reused = pool.counters.reused
        pool.acquire(1728)
        assert pool.counters.reused == reused + 1

    def test_memory_of_a_size_not_asked_for_lately_is_freed_when_there_is_no_room(self) -> None:
        pool = BufferPool(PoolConfig(max_retained_bytes=2048))
        old = pool.acquire(1152)
        recent = pool.acquire(1728)
        recent.release()
        old.release()
        assert (pool.counters.retained_bytes, pool.counters.freed) == (1728, 1)

    def test_trim_frees_what_was_not_needed_since_the_last_one(self) -> None:
        pool = BufferPool()
        used = pool.acquire(512)
        burst = [pool.acquire(300_000) for _ in range(5)]
        for fragment in burst:
            fragment.release()
        size = pool.counters.retained_bytes // 5
        pool.trim()
        assert pool.counters.retained_bytes == 5 * size
        for _ in range(3):
            first, second = pool.acquire(300_000), pool.acquire(300_000)
            first.release()
            second.release()
        pool.trim()
        assert pool.counters.retained_bytes == 2 * size
        pool.trim()
        assert pool.counters.retained_bytes == 0
        used.memory[:3] = b"abc"
        assert pool.counters.in_use == 1

    @pytest.mark.parametrize("size_bytes", [512, 100_000_000])
    def test_poison_shows_a_view_that_outlived_its_reference(self, size_bytes: int) -> None:
        pool = BufferPool(PoolConfig(poison=True))
        fragment = pool.acquire(size_bytes)
        late = fragment.memory[:100]
        late[:] = b"x" * 100
        fragment.release()
        assert bytes(late) == POISON * 100


class PoolMachine(RuleBasedStateMachine):
    """A pool against plain bookkeeping: every live fragment keeps its own bytes, and the counters are true."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(PoolConfig(first_size_bytes=200_000, num_tiers=2, max_retained_bytes=250_000))
        self.live: list[tuple[Fragment, bytes, int]] = []
        self.serial = 0

    @rule(size_bytes=st.one_of(st.integers(0, 2_000), st.integers(0, 1_000_000)))
    def acquire(self, size_bytes: int) -> None:
        fragment = self.pool.acquire(size_bytes)
        self.serial += 1
        mark = self.serial.to_bytes(8, "big")
        fragment.memory[: len(mark[:size_bytes])] = mark[:size_bytes]
        self.live.append((fragment, mark[:size_bytes], 1))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.live) - 1))
        fragment, mark, references = self.live[index]
        fragment.retain()
        self.live[index] = (fragment, mark, references + 1)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.live) - 1))
        fragment, mark, references = self.live.pop(index)
        fragment.release()
        if references > 1:
            self.live.append((fragment, mark, references - 1))

    @rule(times=st.integers(1, 2))
    def trim(self, times: int) -> None:
        for _ in range(times):
            self.pool.trim()
        assert times < 2 or self.pool.counters.retained_bytes == 0

    @invariant()
    def fragments_keep_their_bytes(self) -> None:
        for fragment, mark, references in self.live:
            assert fragment.references == references
            assert bytes(fragment.memory[: len(mark)]) == mark

    @invariant()
    def counters_are_true(self) -> None:
        counters = self.pool.counters
        assert counters.in_use == len(self.live)
        assert counters.in_use_bytes == sum(fragment.capacity_bytes for fragment, _, _ in self.live)
        assert counters.retained_bytes == sum(len(memory) for tier in self.pool._tiers for memory in tier.free)
        assert counters.retained_bytes <= self.pool.config.max_retained_bytes
        assert counters.acquired - counters.reused <= counters.grown
        assert counters.grown - counters.freed == counters.in_use + sum(len(tier.free) for tier in self.pool._tiers)


TestPoolModel = PoolMachine.TestCase
