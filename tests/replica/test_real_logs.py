"""The replica manager over the storage engine on a simulated disk: what is acknowledged, and what a crash leaves."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.records import EndTxnMarker, Record, build_batch, build_end_txn_marker, iter_batches, iter_records
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.replica.append import AppendResult, Records, TopicIdPartition
from ottla.replica.config import TopicRules
from ottla.replica.fetch import FetchParams, FetchPartition, FetchResult
from ottla.replica.manager import ReplicaManager
from ottla.replica.offset_lookup import OffsetSpec, find_offset
from ottla.replica.partition import Isolation
from ottla.runtime.memory_budget import MemoryBudget
from ottla.runtime.stages import finish
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import OffsetOutOfRangeError, StoreOfflineError
from ottla.storage.log.partition_log import AppendOrigin
from ottla.storage.log_manager import LogManager
from tests.doubles.replica_configs import FixedRules

TOPIC_ID = UUID(int=7)
TOPIC = TopicImage("topic", TOPIC_ID, (PartitionState(leader=0, replicas=(0,), isr=(0,)),) * 3)
NOW_MS = 1_700_000_000_000


class Node:
    """Three partitions of a topic on one node."""

    def __init__(self, manager: ReplicaManager, budget: MemoryBudget, log_manager: LogManager) -> None:
        self.manager = manager
        self.budget = budget
        self.log_manager = log_manager

    async def append(self, *values: bytes, partition: int = 0, acks: int = -1, **options: Any) -> AppendResult:
        records = [Record(value=value, timestamp_ms=NOW_MS + len(value)) for value in values]
        return await self.append_batch(build_batch(records, **options), partition=partition, acks=acks)

    async def append_batch(
        self, batch: bytes, *, partition: int = 0, acks: int = -1, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendResult:
        key = TopicIdPartition(TOPIC_ID, partition)
        entries = {key: Records(memoryview(bytearray(batch)))}
        return (await self.manager.append(entries, required_acks=acks, timeout_ms=5000, origin=origin))[key]

    async def fetch(
        self, offset: int = 0, *, partition: int = 0, isolation: Isolation = Isolation.HIGH_WATERMARK, wait_ms: int = 0
    ) -> FetchResult:
        params = FetchParams(max_wait_ms=wait_ms, min_bytes=1, isolation=isolation)
        (result,) = await self.manager.fetch(params, [FetchPartition(TOPIC_ID, partition, offset)])
        return result

    async def values(self, offset: int = 0, *, partition: int = 0, **options: Any) -> list[bytes | None]:
        result = await self.fetch(offset, partition=partition, **options)
        if result.error is not None:
            raise result.error
        data = b"" if result.records is None else result.records.to_bytes()
        result.release()
        return [
            record.value
            for position, header in iter_batches(data)
            if not header.is_control
            for record in iter_records(data, position, header)
        ]

    async def latest(self, partition: int = 0, isolation: Isolation = Isolation.HIGH_WATERMARK) -> int:
        held = self.manager.get_partition(TOPIC_ID, partition)
        return (await finish(find_offset(held, OffsetSpec.LATEST, isolation=isolation))).offset


@asynccontextmanager
async def start(
    disk: SimulatedDisk, config: StorageConfig | None = None, log_config: LogConfig | None = None
) -> AsyncIterator[Node]:
    clock = ManualClock(NOW_MS)
    budget = MemoryBudget(1 << 24)
    log_manager = LogManager(disk, "/data", config or StorageConfig(), clock, run_blocking=in_place)
    manager = ReplicaManager(
        log_manager,
        clock,
        FixedRules(lambda: TopicRules(log_config or LogConfig())),
        response_budget=budget,
    )
    log_manager.set_listener(manager)
    async with log_manager.run():
        before = MetadataImage()
        image = replace(
            before,
            topics=before.topics.set("topic", TOPIC),
            topics_by_id=before.topics_by_id.set(TOPIC_ID, TOPIC),
        )
        changes = [PartitionChange(TOPIC, index, None, TOPIC.partitions[index]) for index in range(3)]
        await manager.apply(MetadataDelta(before, image, created_topics=[TOPIC], changed_partitions=changes))
        yield Node(manager, budget, log_manager)
        manager.close()
    assert budget.used_bytes == 0


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


async def in_place(function: Callable[[], Any]) -> Any:
    """Run blocking work on the event loop: a simulated disk needs no thread."""
    await trio.lowlevel.checkpoint()
    return function()


async def test_what_is_acknowledged_is_read_and_survives_a_restart(disk: SimulatedDisk) -> None:
    async with start(disk) as node:
        for index in range(5):
            result = await node.append(b"%d" % index)
            assert (result.error, result.base_offset) == (None, index)
        assert await node.values() == [b"0", b"1", b"2", b"3", b"4"]
        assert await node.latest() == 5
    async with start(disk) as node:
        assert await node.latest() == 5
        assert await node.values(3) == [b"3", b"4"]
        assert (await node.append(b"5")).base_offset == 5


async def test_a_store_that_fails_acknowledges_nothing_more_and_loses_nothing(disk: SimulatedDisk) -> None:
    async with start(disk) as node:
        assert (await node.append(b"kept")).error is None
        results: list[AppendResult | FetchResult] = []

        async def append(partition: int) -> None:
            results.append(await node.append(b"never acknowledged", partition=partition))

        async def fetch() -> None:
            results.append(await node.fetch(1, wait_ms=60_000))

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fetch)
                await wait_all_tasks_blocked()
                disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO))
                for partition in (0, 1):
                    nursery.start_soon(append, partition)
        assert len(results) == 3
        assert all(isinstance(result.error, StoreOfflineError) for result in results)
        assert isinstance((await node.append(b"refused", partition=2)).error, StoreOfflineError)
        assert isinstance((await node.fetch(0)).error, StoreOfflineError)
    async with start(disk.crash()) as node:
        assert (await node.values())[:1] == [b"kept"]


async def test_a_log_without_its_tail_in_memory_is_read_from_the_disk() -> None:
    disk = SimulatedDisk(3, cold_probability=0.5)
    async with start(disk, StorageConfig(tail_cache_bytes=0)) as node:
        for index in range(50):
            await node.append(b"%02d" % index + bytes(500), partition=index % 2)
        for partition in (0, 1):
            numbers = [int((value or b"")[:2]) for value in await node.values(partition=partition)]
            assert numbers == list(range(partition, 50, 2))
            assert ((await node.values(24, partition=partition))[0] or b"")[:2] == b"%02d" % (48 + partition)


@pytest.mark.parametrize("isolation", [Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED])
async def test_a_fetch_goes_on_beyond_what_compaction_removed(disk: SimulatedDisk, isolation: Isolation) -> None:
    config = StorageConfig(segment_bytes=2500, tail_cache_bytes=0)
    compacted = LogConfig(compact=True, delete=False, min_cleanable_dirty_ratio=0.01)
    producer = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    async with start(disk, config, compacted) as node:

        async def append(key: str, **options: Any) -> None:
            record = Record(key=key.encode(), value=key.encode() + bytes(150), timestamp_ms=NOW_MS)
            assert (await node.append_batch(build_batch([record], **options))).error is None

        for sequence in range(15):  # whole segments of an aborted transaction, which go
            await append("gone", base_sequence=sequence, **producer)
        marker = build_end_txn_marker(EndTxnMarker(9, 0, 0, is_commit=False), timestamp_ms=NOW_MS)
        await node.append_batch(marker, origin=AppendOrigin.COORDINATOR)
        for key in ["a", "b", "c", "d"] * 10 + ["e"] * 15 + ["f"]:
            await append(key)
        await append("open", base_sequence=15, **producer)
        await node.log_manager.maintenance.wait_idle()
        await node.log_manager.clean()
        log = node.manager.get_partition(TOPIC_ID, 0).log
        end = await node.latest(isolation=isolation)
        assert end == (log.log_end_offset if isolation is Isolation.HIGH_WATERMARK else log.log_end_offset - 1)
        expected = [value[:1] for value in await node.values(isolation=isolation) if value is not None]
        assert len(expected) < 40
        assert set(expected) >= {b"a", b"b", b"c", b"d", b"e", b"f"}
        for offset in range(end):
            found = [value[:1] for value in await node.values(offset, isolation=isolation) if value is not None]
            assert found
            assert found == expected[len(expected) - len(found) :]
        assert (await node.fetch(end, isolation=isolation)).records is None


async def test_records_are_deleted_for_good(disk: SimulatedDisk) -> None:
    async with start(disk) as node:
        for index in range(5):
            await node.append(b"%d" % index)
        key = TopicIdPartition(TOPIC_ID, 0)
        result = (await node.manager.delete_records({key: 3}, timeout_ms=5000))[key]
        assert (result.error, result.low_watermark) == (None, 3)
    async with start(disk) as node:
        assert await node.values(3) == [b"3", b"4"]
        with pytest.raises(OffsetOutOfRangeError):
            await node.values(2)
        held = node.manager.get_partition(TOPIC_ID, 0)
        earliest = await finish(find_offset(held, OffsetSpec.EARLIEST, isolation=Isolation.HIGH_WATERMARK))
        assert (earliest.offset, earliest.leader_epoch) == (3, 0)


async def test_read_committed_waits_for_the_marker_and_names_the_aborted(disk: SimulatedDisk) -> None:
    async with start(disk) as node:
        producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        assert (await node.append(b"a", b"b", **producer)).error is None
        assert (await node.append(b"plain")).error is None
        assert await node.latest() == 3
        assert await node.latest(isolation=Isolation.TXN_COMMITTED) == 0
        assert await node.values(isolation=Isolation.TXN_COMMITTED) == []
        assert await node.values() == [b"a", b"b", b"plain"]
        results: list[FetchResult] = []

        async def fetch() -> None:
            results.append(await node.fetch(isolation=Isolation.TXN_COMMITTED, wait_ms=60_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await wait_all_tasks_blocked()
            marker = EndTxnMarker(producer_id=9, producer_epoch=0, is_commit=False, coordinator_epoch=0)
            batch = build_end_txn_marker(marker, timestamp_ms=NOW_MS)
            marked = await node.append_batch(batch, origin=AppendOrigin.COORDINATOR)
            assert (marked.error, marked.base_offset) == (None, 3)
        assert results[0].aborted_transactions == [(9, 0)]
        assert (results[0].high_watermark, results[0].last_stable_offset) == (4, 4)
        results[0].release()


async def test_a_repeated_batch_is_acknowledged_with_its_first_offset(disk: SimulatedDisk) -> None:
    async with start(disk) as node:
        producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
        for _ in range(2):
            result = await node.append(b"once", **producer)
            assert (result.error, result.base_offset, result.last_offset) == (None, 0, 0)
        assert await node.latest() == 1
    async with start(disk) as node:
        assert (await node.append(b"once", **producer)).base_offset == 0
        assert await node.latest() == 1


async def test_records_are_found_by_time(disk: SimulatedDisk) -> None:
    async with start(disk) as node:
        for length in (5, 1, 9):
            await node.append(bytes(length))  # its timestamp is NOW_MS + length
        held = node.manager.get_partition(TOPIC_ID, 0)

        async def find(timestamp_ms: int) -> int:
            return (await finish(find_offset(held, timestamp_ms, isolation=Isolation.HIGH_WATERMARK))).offset

        assert [await find(NOW_MS + after) for after in (0, 5, 6, 9, 10)] == [0, 0, 2, 2, -1]
        assert await find(OffsetSpec.MAX_TIMESTAMP) == 2


async def test_min_bytes_are_waited_for_also_where_nothing_is_in_memory(disk: SimulatedDisk) -> None:
    """After a restart it is not known, without a read, how much lies behind an offset: surely not more than the log."""
    async with start(disk) as node:
        await node.append(bytes(100))
    async with start(disk) as node:
        results: list[FetchResult] = []

        async def fetch() -> None:
            params = FetchParams(max_wait_ms=3_600_000, min_bytes=1000)
            results.extend(await node.manager.fetch(params, [FetchPartition(TOPIC_ID, 0, 0)]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await wait_all_tasks_blocked()
            assert results == []
            await node.append(bytes(1000))
        assert results[0].size_bytes > 1000
        results[0].release()
