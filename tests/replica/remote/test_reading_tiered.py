"""Fetches and lookups across the border of what is on the disk and what is in the object store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.records import Record, build_batch
from ottla.replica.errors import OffsetNotAvailableError
from ottla.replica.offset_lookup import FoundOffset, OffsetSpec, find_offset
from ottla.replica.partition import Isolation
from ottla.replica.tiered.errors import RemoteStorageError
from ottla.runtime.stages import finish
from ottla.storage.errors import OffsetOutOfRangeError
from ottla.tiers.manifest_file import ManifestFile
from tests.replica.remote.tiered import FIRST_MS, TOPIC_ID, TieredNode, new_store, tiered_node
from tests.tiers.faults import FaultyObjectStore

BATCHES = 100


@pytest.fixture
def store() -> FaultyObjectStore:
    return new_store()


@pytest.fixture
async def node(tmp_path: Path, store: FaultyObjectStore) -> AsyncIterator[TieredNode]:
    """It leads a partition of which only the newest records are on the disk."""
    async with tiered_node(tmp_path, store) as node:
        await node.lead()
        await node.append(BATCHES)
        node.contents.append(await node.values())
        await node.tier()
        assert 100 < node.log.log_start_offset < node.log.log_end_offset == 2 * BATCHES
        assert node.partition.log_start_offset == 0
        yield node


async def test_a_consumer_reads_all_of_it(node: TieredNode) -> None:
    for max_bytes in (1, 3000, 1 << 20):
        assert await node.values(max_bytes=max_bytes) == node.contents[0]
    border = node.log.log_start_offset
    for offset in (1, border - 2, border - 1, border):
        assert node.contents[0].endswith(await node.values(offset))
    result = await node.fetch(5)
    assert (result.log_start_offset, result.high_watermark) == (0, 2 * BATCHES)
    result.release()
    assert node.manager.response_budget.used_bytes == 0


async def test_beyond_both_ends_is_out_of_range(node: TieredNode) -> None:
    for offset in (-1, 2 * BATCHES + 1):
        assert isinstance((await node.fetch(offset)).error, OffsetOutOfRangeError)


async def test_a_store_that_fails_is_no_end_of_the_log(node: TieredNode, store: FaultyObjectStore) -> None:
    store.fail_next("get_range", 1000)
    result = await node.fetch(0)
    assert isinstance(result.error, RemoteStorageError)
    assert result.error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert node.storage.counters.fetch_errors == 1
    # What is on the disk is read all the same.
    result = await node.fetch(node.log.log_start_offset)
    assert result.error is None
    result.release()
    store.before = lambda number, method, name: None
    assert await node.values() == node.contents[0]


async def test_a_store_that_lies_is_not_believed(node: TieredNode, store: FaultyObjectStore) -> None:
    store.distort = lambda name, content: content[:-1] if "segments" in name else content
    assert isinstance((await node.fetch(0)).error, RemoteStorageError)
    store.distort = lambda name, content: content
    assert await node.values() == node.contents[0]


async def test_a_slow_store_delays_only_the_fetch_that_needs_it(node: TieredNode, store: FaultyObjectStore) -> None:
    may_answer = trio.Event()
    asked = trio.Event()
    get_range = store.get_range

    async def wait(name: str, start: int, length: int) -> bytes:
        asked.set()
        await may_answer.wait()
        return await get_range(name, start, length)

    store.get_range = wait  # type: ignore[method-assign]
    late = []

    async def fetch() -> None:
        late.append(await node.fetch(0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch)
        await asked.wait()
        local = await node.fetch(node.log.log_start_offset)
        assert local.records is not None
        local.release()
        assert late == []
        may_answer.set()
    assert late[0].records is not None
    late[0].release()


async def test_what_comes_too_late_is_there_for_the_next_fetch(node: TieredNode, store: FaultyObjectStore) -> None:
    node.wait_ms = 1
    store.pauses = lambda name: 0.05
    result = await node.fetch(0)
    assert (result.error, result.records, result.high_watermark) == (None, None, 2 * BATCHES)
    assert node.storage.counters.late_fetches == 1
    with trio.fail_after(30):
        while True:
            node.wait_ms = 20
            result = await node.fetch(0)
            assert result.error is None
            if result.records is not None:
                break
    result.release()


async def test_what_somebody_else_has_deleted_is_out_of_range(node: TieredNode, store: FaultyObjectStore) -> None:
    manifest = node.remote.manifest
    assert manifest is not None
    first = manifest[0]
    names = node.remote.names
    # A later leader has let it go, and what it was in was swept.
    other = ManifestFile(store, names.manifest(0), TOPIC_ID, 0)
    await other.change(lambda found: found.with_log_start(first.last_offset + 1, 5))
    await store.delete([names.index(first.upload), names.part(first.upload, 0)])
    error = (await node.fetch(0)).error
    assert isinstance(error, OffsetOutOfRangeError), error


async def test_read_committed_is_told_of_aborted_transactions_on_both_sides(
    tmp_path: Path, store: FaultyObjectStore
) -> None:
    async with tiered_node(tmp_path, store) as node:
        await node.lead()
        firsts = {}
        for producer_id in range(1, 5):
            firsts[producer_id] = node.log.log_end_offset
            transactional = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": 0,
                "is_transactional": True,
            }
            batch = build_batch([Record(timestamp_ms=FIRST_MS, value=b"t")], **transactional)  # type: ignore[arg-type]
            await node.append_batch(batch)
            await node.append(20)
            await node.end_transaction(producer_id, commits=producer_id % 2 == 0)
        await node.tier()
        assert firsts[2] < node.log.log_start_offset
        found = set()
        offset = 0
        while offset < node.log.last_stable_offset:
            result = await node.fetch(offset, isolation=Isolation.TXN_COMMITTED, max_bytes=2000)
            assert result.plan is not None
            assert result.aborted_transactions is not None
            found |= set(result.aborted_transactions)
            offset = result.plan.next_offset
            result.release()
        assert found == {(1, firsts[1]), (3, firsts[3])}


async def test_offsets_by_role_and_by_time(node: TieredNode) -> None:
    border, end = node.log.log_start_offset, node.remote.last_offset + 1
    assert await node.find(OffsetSpec.EARLIEST) == FoundOffset(-1, 0, 0)
    assert await node.find(OffsetSpec.EARLIEST_LOCAL) == FoundOffset(-1, border, 0)
    assert await node.find(OffsetSpec.LATEST) == FoundOffset(-1, 2 * BATCHES, 0)
    assert await node.find(OffsetSpec.LATEST_TIERED) == FoundOffset(-1, end - 1, 0)
    assert await node.find(OffsetSpec.EARLIEST_PENDING_UPLOAD) == FoundOffset(-1, end, 0)
    assert await node.find(OffsetSpec.MAX_TIMESTAMP) == FoundOffset(FIRST_MS + 199, 199, 0)
    for offset in (0, 1, 77, border - 1, border, border + 1, 199):
        assert await node.find(FIRST_MS + offset) == FoundOffset(FIRST_MS + offset, offset, 0)
    assert await node.find(FIRST_MS - 5) == FoundOffset(FIRST_MS, 0, 0)
    assert await node.find(FIRST_MS + 200) == FoundOffset()


async def test_no_offset_is_to_be_copied_where_no_record_may_be_seen(node: TieredNode) -> None:
    await node.append_batch(
        build_batch([Record(value=b"v")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    await node.remote.delete_until(2 * BATCHES, node.log, 0)
    spec, both = OffsetSpec.EARLIEST_PENDING_UPLOAD, (Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED)
    found = [await finish(find_offset(node.partition, spec, isolation=isolation)) for isolation in both]
    assert found == [FoundOffset(-1, 2 * BATCHES, 0), FoundOffset()]


async def test_a_lookup_by_time_does_not_ask_the_store_for_what_is_here(
    node: TieredNode, store: FaultyObjectStore
) -> None:
    store.requests.clear()
    assert (await node.find(FIRST_MS + 199)).offset == 199
    assert store.requests == []


async def test_a_new_leader_looks_before_it_says_where_the_log_begins(
    node: TieredNode, store: FaultyObjectStore
) -> None:
    await node.lead(3)
    assert not node.partition.knows_log_start
    store.fail_next("get", 1000)
    for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST_TIERED):
        with pytest.raises(OffsetNotAvailableError):
            await node.find(spec)
    assert (await node.find(OffsetSpec.EARLIEST_LOCAL)).offset == node.log.log_start_offset
    with pytest.raises(RemoteStorageError):
        await node.find(FIRST_MS)
    store.before = lambda number, method, name: None
    assert (await node.find(OffsetSpec.EARLIEST)).offset == 0
    assert node.partition.knows_log_start


async def test_epochs_of_both_parts_end_where_they_did(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        ends = {}
        for epoch in range(4):
            await node.lead(epoch)
            await node.append(20)
            ends[epoch] = node.log.log_end_offset
        before = {epoch: node.partition.end_offset_for_epoch(epoch) for epoch in range(5)}
        await node.tier()
        assert node.log.log_start_offset > ends[1]
        assert {epoch: node.partition.end_offset_for_epoch(epoch) for epoch in range(5)} == before
        assert [node.partition.epoch_at(ends[epoch] - 1) for epoch in range(4)] == [0, 1, 2, 3]
        # A consumer that has read other records of an earlier epoch is told so.
        result = await node.fetch(ends[0] + 4, last_fetched_epoch=0)
        assert result.diverging_epoch == (0, ends[0])
        # Of an epoch that nobody knows nothing can be said: what is in the object store is read all the same.
        for offset, epoch in ((ends[0], 0), (ends[0], 9)):
            result = await node.fetch(offset, last_fetched_epoch=epoch)
            assert result.diverging_epoch is None
            assert result.records is not None
            result.release()
        assert isinstance((await node.fetch(ends[3], last_fetched_epoch=9)).error, OffsetOutOfRangeError)
