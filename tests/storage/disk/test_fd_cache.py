"""The descriptor cache: bounded, least recently used first, never what is in use; against a model."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.storage.disk.fd_cache import FdCache
from ottla.storage.disk.simulated_disk import SimulatedDisk


def disk_with_files(count: int) -> SimulatedDisk:
    disk = SimulatedDisk()
    for number in range(count):
        handle = disk.create(f"/{number}")
        disk.pwritev(handle, [b"%d" % number], 0)
        disk.close(handle)
    return disk


def read(disk: SimulatedDisk, handle: int) -> bytes:
    buffer = bytearray(8)
    return bytes(buffer[: disk.preadv(handle, [memoryview(buffer)], 0)])


def use(cache: FdCache, *paths: str) -> None:
    for path in paths:
        with cache.pinned(path):
            pass


def test_a_second_use_is_a_hit() -> None:
    cache = FdCache(disk_with_files(1), 2)
    use(cache, "/0", "/0")
    assert (cache.counters.hits, cache.counters.misses, len(cache)) == (1, 1, 1)


def test_the_least_recently_used_goes_first() -> None:
    cache = FdCache(disk_with_files(3), 2)
    use(cache, "/0", "/1", "/0", "/2", "/0")
    assert (cache.counters.hits, cache.counters.misses, cache.counters.evicted) == (2, 3, 1)


def test_eviction_skips_what_is_in_use_and_catches_up() -> None:
    disk = disk_with_files(3)
    cache = FdCache(disk, 1)
    with cache.pinned("/0") as first, cache.pinned("/1") as second, cache.pinned("/2") as third:
        assert [read(disk, handle) for handle in (first, second, third)] == [b"0", b"1", b"2"]
        assert len(cache) == disk.open_handles == 3
    assert len(cache) == disk.open_handles == 1


def test_a_dropped_file_stays_open_for_those_who_use_it() -> None:
    disk = disk_with_files(1)
    cache = FdCache(disk, 2)
    with cache.pinned("/0") as old:
        disk.unlink("/0")
        cache.drop("/0")
        replacement = disk.create("/0")
        disk.pwritev(replacement, [b"new"], 0)
        disk.close(replacement)
        with cache.pinned("/0") as new:
            assert (read(disk, old), read(disk, new)) == (b"0", b"new")
            assert len(cache) == 2
    assert len(cache) == disk.open_handles == 1


def test_a_file_that_cannot_open_leaves_nothing_behind() -> None:
    cache = FdCache(disk_with_files(0), 2)
    with pytest.raises(FileNotFoundError), cache.pinned("/missing"):
        pass
    assert len(cache) == 0


def test_an_error_inside_the_block_unpins() -> None:
    disk = disk_with_files(1)
    cache = FdCache(disk, 1)
    with pytest.raises(KeyError), cache.pinned("/0"):
        raise KeyError
    cache.close()
    assert disk.open_handles == 0


def test_no_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FdCache(SimulatedDisk(), 0)


class CacheMachine(RuleBasedStateMachine):
    """Random pins, drops and replacements: a pinned handle always reads its file, and the bound holds."""

    CAPACITY = 3

    def __init__(self) -> None:
        super().__init__()
        self.disk = disk_with_files(6)
        self.cache = FdCache(self.disk, self.CAPACITY)
        self.contents = {f"/{number}": b"%d" % number for number in range(6)}
        self.pinned: list[tuple[object, int, bytes]] = []
        self.serial = 6

    @rule(number=st.integers(0, 5))
    def pin(self, number: int) -> None:
        pinned = self.cache.pinned(f"/{number}")
        self.pinned.append((pinned, pinned.__enter__(), self.contents[f"/{number}"]))

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        pinned, _, _ = self.pinned.pop(data.draw(st.integers(0, len(self.pinned) - 1)))
        pinned.__exit__(None, None, None)  # type: ignore[attr-defined]

    @rule(number=st.integers(0, 5))
    def replace(self, number: int) -> None:
        self.serial += 1
        path, content = f"/{number}", b"%d" % self.serial
        self.disk.write_file_atomic(path, content)
        self.contents[path] = content
        self.cache.drop(path)

    @invariant()
    def pinned_handles_read_their_files(self) -> None:
        for _, handle, content in self.pinned:
            assert read(self.disk, handle) == content

    @invariant()
    def no_descriptor_leaks(self) -> None:
        assert len(self.cache) == self.disk.open_handles
        in_use = len({handle for _, handle, _ in self.pinned})
        assert len(self.cache._descriptors) <= max(self.CAPACITY, in_use)
        assert len(self.cache) - in_use <= self.CAPACITY
        if not self.pinned:
            assert len(self.cache) <= self.CAPACITY


TestCacheModel = CacheMachine.TestCase
