"""Large memory is given back beside what the interpreter does, not in one piece."""

from __future__ import annotations

import mmap
import threading
import weakref

import pytest

from ottla.storage.memory.buffer_pool import BufferPool, PoolConfig
from ottla.storage.memory.unmapping import Unmapping

SIZE_BYTES = 40 << 20


def wait_for_unmapping() -> None:
    for thread in threading.enumerate():
        if thread.name == "ottla unmapping":
            thread.join()


def test_the_pages_are_given_back() -> None:
    pool = BufferPool()
    for _ in range(3):
        fragment = pool.acquire(SIZE_BYTES)
        mapping = fragment.memory.obj
        assert isinstance(mapping, mmap.mmap)
        fragment.memory[::4096] = b"x" * (len(fragment.memory) // 4096)
        fragment.release()
        wait_for_unmapping()
        # What was written is gone, though the mapping is held here.
        assert mapping[::4096].strip(b"\0") == b""
    assert pool.counters.freed == 3
    assert pool.counters.in_use_bytes == 0


def test_what_a_trim_and_a_small_pool_give_up_goes_the_same_way() -> None:
    pool = BufferPool(PoolConfig(max_retained_bytes=16 << 20))
    first, second = pool.acquire(16 << 20), pool.acquire(16 << 20)
    mappings = [first.memory.obj, second.memory.obj]
    for fragment in (first, second):
        fragment.memory[0] = 1
        fragment.release()
    pool.trim()
    pool.trim()
    wait_for_unmapping()
    assert pool.counters.retained_bytes == 0
    assert [mapping[0] for mapping in mappings] == [0, 0]  # type: ignore[index]


def test_where_no_thread_can_be_started_memory_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    unmapping = Unmapping()
    mapping = mmap.mmap(-1, 1 << 20)
    gone = weakref.ref(mapping)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        unmapping.free(memoryview(mapping))
    del mapping
    assert gone() is None
    later = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    later[0] = 1
    unmapping.free(memoryview(later))
    wait_for_unmapping()
    assert later[0] == 0
