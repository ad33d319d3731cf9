"""Reading out of an object store that is slow, fails and lies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.storage.disk.memory_disk import MemoryDisk
from ottla.tiers.errors import CorruptObjectError, ObjectMissingError, ObjectStoreUnavailableError
from ottla.tiers.manifest import Manifest, RemoteSegment
from ottla.tiers.partition_index import build_index
from ottla.tiers.reading.disk_cache import DiskCache
from ottla.tiers.reading.reader import TierReader
from ottla.tiers.stores.memory_store import MemoryObjectStore
from tests.tiers.faults import FaultyObjectStore
from tests.tiers.logs import LogSource, batch, log_of
from tests.tiers.tier import NAMES, Tier, inline, read_all, reading

LARGE_PART_BYTES = 16 << 20


@pytest.fixture
def store() -> FaultyObjectStore:
    return FaultyObjectStore(MemoryObjectStore(lambda: 1))


async def copied(store: FaultyObjectStore, source: LogSource, *, part_bytes: int = LARGE_PART_BYTES) -> Manifest:
    manifest = (await Tier(store, part_bytes=part_bytes).copy([source]))[source.partition]
    assert isinstance(manifest, Manifest)
    store.requests.clear()
    return manifest


def large_log(partition: int = 0, *, batches_made: int = 160) -> LogSource:
    """Twelve windows of it."""
    batches = [batch(3 * number, value_bytes=100_000) for number in range(batches_made)]
    return LogSource(partition, batches, read_bytes=4_000_000)


async def test_the_first_byte_takes_two_requests(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    manifest = await copied(store, large_log())
    async with reading(store) as reader:
        records = await reader.read(NAMES, manifest, 200, max_bytes=1, end_offset=480)
        assert bytes(records.content) == batch(198, value_bytes=100_000)
        assert [method for method, _ in store.requests] == ["get_range", "get_range"]


async def test_who_reads_on_is_read_ahead_for(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    source = large_log()
    manifest = await copied(store, source)
    store.pauses = lambda name: 1.0
    async with reading(store, cache_bytes=1 << 30) as reader:
        began = trio.current_time()
        assert await read_all(reader, manifest, max_bytes=1_000_000) == source.content
        # An index and twelve windows, one after the other, would take thirteen seconds.
        assert trio.current_time() - began < 9
        asked = len(store.requests)
        assert asked <= 15
        assert await read_all(reader, manifest, max_bytes=1_000_000) == source.content
        assert len(store.requests) == asked


async def test_what_several_readers_are_read_ahead_for_is_fetched_once(
    autojump_clock: MockClock, store: FaultyObjectStore
) -> None:
    sources = [large_log(partition, batches_made=60) for partition in range(4)]
    made = await Tier(store, part_bytes=LARGE_PART_BYTES).copy(sources)
    store.requests.clear()
    store.pauses = lambda name: 0.1
    offsets = dict.fromkeys(range(4), 0)
    async with reading(store, cache_bytes=0) as reader:
        while min(offsets.values()) < 180:
            for partition, offset in offsets.items():
                manifest = made[partition]
                assert isinstance(manifest, Manifest)
                records = await reader.read(NAMES, manifest, offset, max_bytes=1_000_000, end_offset=180)
                offsets[partition] = records.next_offset
        wanted = sum(each.size_bytes + each.index_length for manifest in made.values() for each in _segments(manifest))
        assert reader.fetched_bytes == wanted


def _segments(manifest: object) -> list[RemoteSegment]:
    assert isinstance(manifest, Manifest)
    return list(manifest)


async def test_readers_that_have_gone_do_not_keep_others_from_being_read_ahead_for(
    autojump_clock: MockClock, store: FaultyObjectStore
) -> None:
    made = await Tier(store, part_bytes=LARGE_PART_BYTES).copy(
        [large_log(partition, batches_made=60) for partition in range(6)]
    )
    asked: list[int] = []
    async with reading(store, cache_bytes=0) as reader:
        for partition, manifest in made.items():
            assert isinstance(manifest, Manifest)
            if partition == 5:
                await trio.sleep(60)
            store.requests.clear()
            offset = 0
            for _ in range(2):
                records = await reader.read(NAMES, manifest, offset, max_bytes=1_000_000, end_offset=180)
                offset = records.next_offset
            await trio.testing.wait_all_tasks_blocked()
            asked.append(len(store.requests))
    # An index and a window; and what is ahead, of four windows in all.
    assert asked == [5, 3, 2, 2, 2, 5]


async def test_the_beginning_of_the_next_segment_is_fetched_ahead(
    autojump_clock: MockClock, store: FaultyObjectStore
) -> None:
    tier = Tier(store, part_bytes=LARGE_PART_BYTES)
    await tier.copy([log_of(0)])
    manifest = (await tier.copy([log_of(0, offset=60, previous_epoch=1)]))[0]
    assert isinstance(manifest, Manifest)
    store.requests.clear()
    async with reading(store) as reader:
        for offset in (0, 3):
            await reader.read(NAMES, manifest, offset, max_bytes=1, end_offset=120)
        await trio.testing.wait_all_tasks_blocked()
        assert [name for _, name in store.requests].count(NAMES.index(manifest[1].upload)) == 1
        asked = len(store.requests)
        await reader.read(NAMES, manifest, 60, max_bytes=1, end_offset=120)
        assert len(store.requests) == asked


async def test_many_readers_of_the_same_ask_once(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    source = log_of(0)
    manifest = await copied(store, source)
    store.pauses = lambda name: 1.0
    found: list[bytes] = []
    async with reading(store) as reader:

        async def read() -> None:
            records = await reader.read(NAMES, manifest, 0, max_bytes=1 << 20, end_offset=60)
            found.append(bytes(records.content))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(read)
    assert found == [source.content] * 20
    assert len(store.requests) == 2


async def test_a_reader_that_gives_up_takes_nothing_from_others(
    autojump_clock: MockClock, store: FaultyObjectStore
) -> None:
    source = log_of(0)
    manifest = await copied(store, source)
    store.pauses = lambda name: 10.0
    async with reading(store) as reader:
        with trio.move_on_after(5) as scope:
            await reader.read(NAMES, manifest, 0, max_bytes=1 << 20, end_offset=60)
        assert scope.cancelled_caught
        assert await read_all(reader, manifest, max_bytes=1 << 20) == source.content
        assert len(store.requests) == 2


async def test_a_slow_object_delays_only_who_needs_it(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    slow, fast = log_of(0), log_of(1)
    slow_manifest = await copied(store, slow)
    manifest = (await Tier(store, first_number=50).copy([fast]))[1]
    assert isinstance(manifest, Manifest)
    upload = str(slow_manifest[0].upload)
    store.pauses = lambda name: 1000.0 if upload in name else 0.0
    async with reading(store) as reader, trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(read_all, reader, slow_manifest)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            assert await read_all(reader, manifest) == fast.content
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["shorter", "longer", "changed", "empty", "other"])
@pytest.mark.parametrize("where", [".index", ".000"])
async def test_a_store_that_lies_is_not_believed(
    autojump_clock: MockClock, store: FaultyObjectStore, where: str, kind: str
) -> None:
    source = log_of(0)
    manifest = await copied(store, source)
    lies: dict[str, Callable[[bytes], bytes]] = {
        "shorter": lambda content: content[:-1],
        "longer": lambda content: content + b"x",
        "changed": lambda content: content[:50] + bytes([content[50] ^ 4]) + content[51:],
        "empty": lambda content: b"",
        "other": lambda content: bytes(len(content)),
    }
    store.distort = lambda name, content: lies[kind](content) if where in name else content
    async with reading(store) as reader:
        for _ in range(2):
            with pytest.raises(CorruptObjectError):
                await read_all(reader, manifest)
        # And what was a lie is not kept.
        store.distort = lambda name, content: content
        assert await read_all(reader, manifest) == source.content


async def test_an_index_of_other_records_is_not_believed(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    """It is whole, and of the same offsets; only the manifest knows that it is not the one that was uploaded."""
    manifest = await copied(store, log_of(0))
    async with reading(store) as reader:
        runs = list(await reader.index(NAMES, 0, manifest[0]))
    other = build_index(NAMES.topic_id, 0, 0, manifest[0].last_offset, runs, producers=b"producerz")
    assert len(other) == manifest[0].index_length
    store.distort = lambda name, content: other if ".index" in name else content
    async with reading(store) as reader:
        with pytest.raises(CorruptObjectError):
            await reader.index(NAMES, 0, manifest[0])


async def test_an_object_that_is_gone_is_said_to_be(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    manifest = await copied(store, log_of(0))
    await store.store.delete([NAMES.part(manifest[0].upload, 0)])
    async with reading(store) as reader:
        with pytest.raises(ObjectMissingError):
            await read_all(reader, manifest)


async def test_a_failure_passes(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    source = log_of(0)
    manifest = await copied(store, source)
    store.fail_next("get_range", 2)
    async with reading(store) as reader:
        for _ in range(2):
            with pytest.raises(ObjectStoreUnavailableError):
                await read_all(reader, manifest)
        assert await read_all(reader, manifest) == source.content


async def test_an_end_ends_every_wait(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    manifest = await copied(store, log_of(0))
    store.pauses = lambda name: 1000.0
    refused = trio.Event()

    async def read(reader: TierReader) -> None:
        with pytest.raises(ObjectStoreUnavailableError):
            await read_all(reader, manifest)
        refused.set()

    async with trio.open_nursery() as nursery:
        async with reading(store) as reader:
            nursery.start_soon(read, reader)
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            await refused.wait()
        with pytest.raises(ObjectStoreUnavailableError):
            await read_all(reader, manifest)


# The cache on the disk.


async def test_the_cache_keeps_its_size() -> None:
    disk = MemoryDisk()
    cache = DiskCache(disk, "/cache", 1000, offload=inline)
    await cache.open()
    for number in range(20):
        await cache.put(number, bytes([number]) * 300)
        assert cache.size_bytes <= 1000
    assert [number for number in range(20) if await cache.get(number) is not None] == [17, 18, 19]
    assert await cache.get(17) == bytes([17]) * 300
    assert len(disk.listdir("/cache")) == 3
    await cache.put("large", bytes(1001))
    assert await cache.get("large") is None


async def test_the_next_start_empties_the_cache() -> None:
    disk = MemoryDisk()
    for _ in range(2):
        cache = DiskCache(disk, "/cache", 1000, offload=inline)
        await cache.open()
        assert disk.listdir("/cache") == []
        await cache.put("a", b"1")
        assert disk.listdir("/cache") != []


async def test_what_the_disk_has_damaged_is_fetched_again(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    source = log_of(0)
    manifest = await copied(store, source)
    disk = MemoryDisk()
    cache = DiskCache(disk, "/cache", 1 << 20, offload=inline)
    await cache.open()
    for damage in ("cut", "changed", "gone"):
        reader = TierReader(store, cache, offload=inline)
        async with reader.run():
            assert await read_all(reader, manifest) == source.content
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(1)
        for name in disk.listdir("/cache"):
            path = f"/cache/{name}"
            content = bytearray(disk.read_file(path))
            disk.unlink(path)
            if damage != "gone":
                content[30] ^= 1
                handle = disk.create(path)
                disk.pwritev(handle, [bytes(content[:-1] if damage == "cut" else content)], 0)
                disk.close(handle)
        reader = TierReader(store, cache, offload=inline)
        async with reader.run():
            assert await read_all(reader, manifest) == source.content


async def test_a_disk_that_is_full_only_forgets(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    class FullDisk(MemoryDisk):
        def create(self, path: str) -> int:
            raise OSError(28, "No space left on device")

    source = log_of(0)
    manifest = await copied(store, source)
    cache = DiskCache(FullDisk(), "/cache", 1 << 20, offload=inline)
    await cache.open()
    reader = TierReader(store, cache, offload=inline)
    async with reader.run():
        assert await read_all(reader, manifest) == source.content
        await trio.sleep(1)
    assert cache.size_bytes == 0
