"""The room on disk, and finding again what is in it."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from uuid import uuid4

import pytest
import trio

from ottla.kproto.messages.data.fetch import PartitionData
from ottla.kproto.records import iter_batches
from ottla.proxy.cache.cache import Cache, Partition, Told
from ottla.proxy.cache.seen import Reader
from ottla.proxy.cache.segments import Place, Segments
from ottla.storage.disk.memory_disk import MemoryDisk
from tests.proxy.cache.leader import Log

KEY = (uuid4(), 0)
EPOCH = 3
MIB = 1024 * 1024


def of(cache: Cache) -> Partition:
    partition = cache.partition(KEY, EPOCH)
    assert partition is not None
    return partition


def told(log: Log) -> Told:
    data = PartitionData(high_watermark=log.end, last_stable_offset=log.end, log_start_offset=log.start)
    return Told(data, Reader("alice", "broker-1", 0), trio.current_time())


async def keep(cache: Cache, log: Log, offset: int, max_bytes: int) -> None:
    records, _ = log.records(offset, max_bytes, log.end)
    data = PartitionData(last_stable_offset=log.end, records=memoryview(records))
    await cache.keep(KEY, EPOCH, offset, 0, data)


def make(size_bytes: int) -> tuple[Cache, MemoryDisk]:
    disk = MemoryDisk()
    disk.mkdir("/cache")
    return Cache(disk, "/cache", size_bytes), disk


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_was_kept_in_whatever_order_is_found_as_it_was(seed: int) -> None:
    rng = Random(seed)
    log = Log()
    for _ in range(120):
        log.append(rng.randint(1, 5), size_bytes=rng.choice((10, 200, 3000)))
    cache, _ = make(64 * MIB)
    cache.note(KEY, EPOCH, told(log))
    for _ in range(25):
        await keep(cache, log, rng.randrange(log.end), rng.choice((100, 5_000, 60_000)))
        offset, limit = rng.randrange(log.end), rng.choice((1, 2_000, 50_000))
        found = await cache.read(of(cache), offset, limit, 0)
        expected, _ = log.records(offset, 1 << 30, log.end)
        if of(cache).end_at(offset, 0) < 0:
            assert found is None
            continue
        assert found is not None
        records = bytes(found.records)
        assert expected.startswith(records)
        assert len(records) <= limit or len(list(iter_batches(records))) == 1
    cache.close()


async def test_the_oldest_goes_when_it_is_full() -> None:
    log = Log()
    for _ in range(300):
        log.append(1, size_bytes=20_000)
    cache, disk = make(2 * MIB)
    cache.note(KEY, EPOCH, told(log))
    for base, _ in log.batches:
        await keep(cache, log, base, 1)
        assert cache.used_bytes <= 2 * MIB
        assert disk.used_bytes <= 2 * MIB + MIB // 4
    assert of(cache).end_at(0, 0) == -1
    assert of(cache).end_at(log.end - 1, 0) == log.end
    held = sum(of(cache).end_at(it, 0) >= 0 for it in range(log.end))
    assert held > 80
    cache.close()
    assert disk.used_bytes == 0


async def test_what_is_read_stays_open_until_it_is_read() -> None:
    disk = MemoryDisk()
    disk.mkdir("/cache")
    segments = Segments(disk, "/cache", 16_000)
    place = segments.reserve(1000)
    segments.write(place, memoryview(b"x" * 1000))
    segments.leave(place.segment)
    segments.enter(place.segment)
    segments.drop_all()
    segments.sweep()
    room = bytearray(1000)
    assert segments.read(place, memoryview(room), nowait=False) == 1000
    assert room == b"x" * 1000
    segments.leave(place.segment)
    segments.sweep()
    assert disk.used_bytes == 0


def test_two_writers_close_what_nobody_uses_at_the_same_time() -> None:
    """A thread may lose its turn between any two steps."""
    disk = MemoryDisk()
    disk.mkdir("/cache")
    segments = Segments(disk, "/cache", 16)
    interval_seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            for _ in range(50):
                for _ in range(100):
                    segments.leave(segments.reserve(1).segment)
                for done in [threads.submit(segments.sweep) for _ in range(2)]:
                    done.result()
    finally:
        sys.setswitchinterval(interval_seconds)
    segments.drop_all()
    segments.sweep()
    assert disk.used_bytes == 0


async def test_small_pieces_do_not_grow_without_a_bound() -> None:
    disk = MemoryDisk()
    disk.mkdir("/cache")
    segments = Segments(disk, "/cache", 64 * MIB)
    for _ in range(80 * 1024):
        segments.leave(segments.reserve(1).segment)
    assert len(segments._segments) == 64
    assert segments.used_bytes == 64 * 1024
    segments.sweep()


async def test_records_that_come_when_their_partition_has_gone_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.append()
    cache, _ = make(64 * MIB)
    await keep(cache, log, 0, 1000)
    assert cache.partition(KEY, EPOCH) is None
    cache.note(KEY, EPOCH, told(log))
    writes, goes_on = trio.Event(), threading.Event()

    def write(place: Place, data: memoryview) -> None:
        trio.from_thread.run_sync(writes.set)
        assert goes_on.wait(60)

    monkeypatch.setattr(cache._segments, "write", write)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep, cache, log, 0, 1000)
        await writes.wait()
        cache.note(KEY, EPOCH + 1, told(log))
        goes_on.set()
    assert cache.counters.kept_bytes == 0
    cache.close()


async def test_a_deposed_leader_changes_nothing() -> None:
    log = Log()
    log.append()
    cache, _ = make(64 * MIB)
    cache.note(KEY, EPOCH + 1, told(log))
    cache.note(KEY, EPOCH, told(log))
    assert cache.partition(KEY, EPOCH) is None
    assert cache.partition(KEY, EPOCH + 1) is not None
    cache.close()
