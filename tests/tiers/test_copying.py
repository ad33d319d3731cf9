"""Copying parts of logs, and reading them again: what comes back is what went in, and nothing else is believed."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import trio
from trio.testing import MockClock

from ottla.storage.errors import CorruptLogError
from ottla.storage.state.aborted_transactions import AbortedTransaction
from ottla.storage.state.leader_epochs import EpochEntry
from ottla.tiers.errors import (
    CorruptObjectError,
    FencedUploadError,
    ObjectStoreUnavailableError,
    OverlappingUploadError,
    UploadExpiredError,
)
from ottla.tiers.manifest import Manifest
from ottla.tiers.rate import ByteRate
from ottla.tiers.stores.memory_store import MemoryObjectStore
from ottla.tiers.upload import COMMIT_WITHIN_MS, UploadNote
from tests.tiers.faults import FaultyObjectStore
from tests.tiers.logs import FIRST_TIME_MS, LogSource, batch, log_of
from tests.tiers.tier import NAMES, Tier, read_all, reading


class StoreTime:
    """The object store's clock, in milliseconds."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000


@pytest.fixture
def time() -> StoreTime:
    return StoreTime()


@pytest.fixture
def store(time: StoreTime) -> FaultyObjectStore:
    return FaultyObjectStore(MemoryObjectStore(lambda: time.now_ms))


def manifest_in(results: object) -> Manifest:
    assert isinstance(results, Manifest), results
    return results


async def test_what_is_copied_is_read(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    sources = [log_of(0), log_of(1, batches=1), log_of(5, batches=40, offset=1000)]
    results = await Tier(store).copy(sources)
    async with reading(store) as reader:
        for source in sources:
            manifest = manifest_in(results[source.partition])
            assert (manifest.log_start_offset, manifest.end_offset) == (source.base_offset, source.end_offset)
            assert manifest.size_bytes == len(source.content)
            assert await read_all(reader, manifest, source.base_offset) == source.content
    parts = [name for method, name in store.requests if method == "put_if" and "segments" in name]
    assert len(parts) > 10


async def test_the_log_goes_on_in_the_next_upload(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    tier = Tier(store)
    first, second = log_of(0), log_of(0, offset=60, epoch=2, previous_epoch=1)
    await tier.copy([first])
    manifest = manifest_in((await tier.copy([second]))[0])
    assert list(manifest.epochs) == [EpochEntry(1, 0), EpochEntry(2, 60)]
    async with reading(store) as reader:
        assert await read_all(reader, manifest) == first.content + second.content
        middle = await reader.read(NAMES, manifest, 31, max_bytes=1, end_offset=120)
        assert bytes(middle.content) == batch(30)
        assert middle.next_offset == 33


async def test_a_read_ends_where_it_is_told(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    manifest = manifest_in((await Tier(store).copy([log_of(0)]))[0])
    async with reading(store) as reader:
        records = await reader.read(NAMES, manifest, 3, max_bytes=100_000, end_offset=10)
        assert bytes(records.content) == batch(3) + batch(6)
        assert records.next_offset == 9
        for offset, end_offset in ((9, 10), (60, 100)):
            records = await reader.read(NAMES, manifest, offset, max_bytes=100_000, end_offset=end_offset)
            assert (bytes(records.content), records.next_offset) == (b"", offset)


async def test_a_batch_larger_than_a_part_is_one(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    batches = [batch(0), batch(3, value_bytes=20_000), batch(6)]
    source = LogSource(0, batches)
    manifest = manifest_in((await Tier(store).copy([source]))[0])
    async with reading(store) as reader:
        assert await read_all(reader, manifest) == source.content


async def test_the_first_batch_may_begin_before_the_log(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    source = LogSource(0, [batch(9), batch(12)], base_offset=10)
    manifest = manifest_in((await Tier(store).copy([source]))[0])
    assert manifest.log_start_offset == 10
    async with reading(store) as reader:
        assert await read_all(reader, manifest, 10) == source.content


async def test_what_else_must_be_known_is_in_the_index(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    aborted = [AbortedTransaction(7, 3, 20, 2), AbortedTransaction(8, 0, 11, 0)]
    source = LogSource(0, [batch(3 * number) for number in range(10)], aborted=aborted)
    manifest = manifest_in((await Tier(store).copy([source]))[0])
    async with reading(store) as reader:
        index = await reader.index(NAMES, 0, manifest[0])
        assert index.producers == b"producers"
        assert index.epochs == [EpochEntry(1, 0)]
        place = index.place_of_time(FIRST_TIME_MS + 14)
        assert index[place].max_timestamp_ms >= FIRST_TIME_MS + 14
        assert place == 0 or index[place - 1].max_timestamp_ms < FIRST_TIME_MS + 14
        assert index.place_of_time(FIRST_TIME_MS + 30) == len(index)
        records = await reader.read(NAMES, manifest, 0, max_bytes=1, end_offset=30)
        assert [each.producer_id for each in records.aborted] == [8]
        records = await reader.read(NAMES, manifest, 3, max_bytes=1, end_offset=30)
        assert [each.producer_id for each in records.aborted] == [8, 7]


async def test_damage_is_not_uploaded(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    source = log_of(0)
    content = bytearray(source.content)
    content[len(content) // 2] ^= 1
    source.content = bytes(content)
    tier = Tier(store)
    with pytest.raises(CorruptLogError):
        await tier.copy([source])
    assert (await tier.file(0).refresh()).revision == 0


@pytest.mark.parametrize("where", ["segments", ".index"])
async def test_a_store_that_keeps_something_else_is_not_believed(
    autojump_clock: MockClock, store: FaultyObjectStore, where: str
) -> None:
    store.distort = lambda name, content: content[:-1] if where in name else content
    tier = Tier(store)
    with pytest.raises(CorruptObjectError):
        await tier.copy([log_of(0)])
    store.distort = lambda name, content: content
    assert (await tier.file(0).refresh()).revision == 0
    assert tier.note is None
    manifest_in((await tier.copy([log_of(0)]))[0])


@pytest.mark.parametrize("method", ["put_if", "get_range", "put"])
@pytest.mark.parametrize("is_done", [True, False])
async def test_an_upload_goes_on_where_it_failed(
    autojump_clock: MockClock, store: FaultyObjectStore, method: str, is_done: bool
) -> None:
    tier = Tier(store)
    source = log_of(0, batches=40)
    store.fail_next(method, 1000, is_done=is_done, name="" if method == "put" else ".000005")
    # What was written although nobody said so is found to be there.
    is_noticed = is_done and method == "put_if"
    with nullcontext() if is_noticed else pytest.raises(ObjectStoreUnavailableError):
        await tier.copy([source])
    if is_noticed:
        assert (await tier.file(0).refresh()).end_offset == 120
        return
    store.before = store.after = lambda number, method, name: None
    first = len(store.requests)
    # As after a restart: another process, with the note that was kept.
    again = Tier(store, first_number=100)
    again.note = tier.note
    manifest = manifest_in((await again.copy([source]))[0])
    async with reading(store) as reader:
        assert await read_all(reader, manifest) == source.content
    if method != "put":
        sent = [name for method, name in store.requests[first:] if method == "put_if" and name.endswith(".000001")]
        assert sent == []


async def test_an_upload_of_other_batches_writes_over_nothing(
    autojump_clock: MockClock, store: FaultyObjectStore
) -> None:
    tier = Tier(store)
    store.fail_next("put_if", 1000, name=".000005")
    with pytest.raises(ObjectStoreUnavailableError):
        await tier.copy([log_of(0, batches=40)])
    store.before = lambda number, method, name: None
    # The log was cut and written again: the note is of other batches.
    other = log_of(0, batches=40, epoch=3)
    with pytest.raises(CorruptObjectError):
        await tier.copy([other])
    manifest = manifest_in((await tier.copy([other]))[0])
    async with reading(store) as reader:
        assert await read_all(reader, manifest) == other.content


async def test_of_two_leaders_one_is_named(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    old, new = Tier(store), Tier(store, first_number=500)
    await old.copy([log_of(0)])
    results: list[object] = []

    async def copy(tier: Tier, source: LogSource) -> None:
        results.append((await tier.copy([source]))[0])

    store.pauses = lambda name: 0.01
    async with trio.open_nursery() as nursery:
        nursery.start_soon(copy, old, log_of(0, offset=60, previous_epoch=1))
        nursery.start_soon(copy, new, log_of(0, offset=60, epoch=2, previous_epoch=1))
    named = [each for each in results if isinstance(each, Manifest)]
    refused = [each for each in results if isinstance(each, FencedUploadError | OverlappingUploadError)]
    assert (len(named), len(refused)) == (1, 1)
    assert named[0].end_offset == 120


async def test_one_partition_may_be_refused(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    tier, other = Tier(store), Tier(store, first_number=500)
    await other.copy([log_of(1, epoch=4)])
    results = await tier.copy([log_of(0), log_of(1, offset=60, previous_epoch=4, epoch=3), log_of(2)])
    assert isinstance(results[1], FencedUploadError)
    assert manifest_in(results[0]).end_offset == manifest_in(results[2]).end_offset == 60


async def test_an_upload_that_took_half_a_day_is_not_named(
    autojump_clock: MockClock, store: FaultyObjectStore, time: StoreTime
) -> None:
    def pass_time(number: int, method: str, name: str) -> None:
        if name.endswith(".index"):
            time.now_ms += COMMIT_WITHIN_MS + 1

    store.after = pass_time
    tier = Tier(store)
    with pytest.raises(UploadExpiredError):
        await tier.copy([log_of(0)])
    assert (await tier.file(0).refresh()).revision == 0


async def test_an_old_note_is_not_gone_on_with(
    autojump_clock: MockClock, store: FaultyObjectStore, time: StoreTime
) -> None:
    tier = Tier(store)
    store.fail_next("put_if", 1000, name=".000005")
    with pytest.raises(ObjectStoreUnavailableError):
        await tier.copy([log_of(0, batches=40)])
    store.before = lambda number, method, name: None
    time.now_ms += COMMIT_WITHIN_MS
    note = tier.note
    manifest = manifest_in((await tier.copy([log_of(0, batches=40)]))[0])
    assert note is not None
    assert manifest[0].upload != note.upload


def test_a_note_that_is_something_else_is_none() -> None:
    assert UploadNote.from_bytes(b"{}") is None
    assert UploadNote.from_bytes(b"\xff") is None
    assert UploadNote.from_bytes(b"[1]") is None


async def test_a_rate_is_kept(autojump_clock: MockClock) -> None:
    rate = ByteRate(1000)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(rate.take, 1000)
    # A second's worth was there.
    assert 8 <= trio.current_time() - began <= 10
    rate.change(0)
    began = trio.current_time()
    await rate.take(10**12)
    assert trio.current_time() == began


async def test_memory_is_bounded(autojump_clock: MockClock, store: FaultyObjectStore) -> None:
    under_way = most = 0

    def begin(number: int, method: str, name: str) -> None:
        nonlocal under_way, most
        if method == "put_if" and ".0000" in name:
            under_way += 1
            most = max(most, under_way)

    def end(number: int, method: str, name: str) -> None:
        nonlocal under_way
        if method == "get_range" and ".0000" in name:
            under_way -= 1

    store.before, store.after = begin, end
    store.pauses = lambda name: 0.01
    await Tier(store).copy([log_of(0, batches=100)])
    assert most == 3
