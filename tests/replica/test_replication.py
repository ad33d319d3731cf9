"""Two replicas over the storage engine: a follower that fetches as KIP-101, KIP-595 and KIP-966 say, and a failover."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.coordinator.errors import CoordinatorError, NotCoordinatorError, StateTooLargeError
from ottla.coordinator.replica_log import ReplicaLog
from ottla.kproto.records import Record, build_batch, iter_batches, iter_records
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.replica.append import AppendResult, Records, TopicIdPartition
from ottla.replica.errors import NotLeaderError, OffsetNotAvailableError
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.replica.manager import ReplicaManager
from ottla.replica.offset_lookup import OffsetSpec, find_offset
from ottla.replica.partition import Isolation, Partition
from ottla.runtime.memory_budget import MemoryBudget
from ottla.runtime.stages import finish
from ottla.storage.clock import ManualClock
from ottla.storage.config import StorageConfig
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log_manager import LogManager
from tests.doubles.one_topic import OneTopic
from tests.doubles.replica_configs import FixedRules

TOPIC_ID = UUID(int=7)
KEY = TopicIdPartition(TOPIC_ID, 0)


async def in_place(function: Callable[[], Any]) -> Any:
    """Run blocking work on the event loop: a simulated disk needs no thread."""
    await trio.lowlevel.checkpoint()
    return function()


class Replica:
    """One node's replica of the one partition."""

    def __init__(self, node_id: int, manager: ReplicaManager) -> None:
        self.node_id = node_id
        self.manager = manager
        self._image = MetadataImage()

    @property
    def partition(self) -> Partition:
        return self.manager.get_partition(*KEY)

    async def apply(self, leader: int, epoch: int, isr: tuple[int, ...] = (0, 1)) -> None:
        """Learn of the partition's new state."""
        state = PartitionState(leader=leader, replicas=(0, 1), isr=isr, leader_epoch=epoch)
        topic = TopicImage("topic", TOPIC_ID, (state,))
        before = self._image
        self._image = replace(
            before,
            topics=before.topics.set("topic", topic),
            topics_by_id=before.topics_by_id.set(TOPIC_ID, topic),
        )
        change = PartitionChange(topic, 0, None, state)
        await self.manager.apply(MetadataDelta(before, self._image, changed_partitions=[change]))

    async def append(self, value: bytes, acks: int = -1) -> AppendResult:
        batch = build_batch([Record(value=value, timestamp_ms=0)])
        entries = {KEY: Records(memoryview(bytearray(batch)))}
        return (await self.manager.append(entries, required_acks=acks, timeout_ms=60_000))[KEY]

    async def fetch_from(self, leader: Replica) -> None:
        """What a follower does once: fetch, truncate where the logs part, append, take over watermark and log start."""
        partition = self.partition
        log = partition.log
        asked = FetchPartition(
            TOPIC_ID,
            0,
            log.log_end_offset,
            current_leader_epoch=partition.leader_epoch,
            last_fetched_epoch=log.latest_epoch,
            log_start_offset=log.log_start_offset,
            known_high_watermark=log.high_watermark,
        )
        params = FetchParams(replica_id=self.node_id, isolation=Isolation.LOG_END)
        (result,) = await leader.manager.fetch(params, [asked])
        assert result.error is None, result.error
        if result.diverging_epoch is not None:
            epoch, end_offset = result.diverging_epoch
            ours = log.end_offset_for_epoch(epoch)
            await log.truncate_to(min(end_offset, ours[1]))
            return
        if result.records is not None:
            log.append_as_follower(memoryview(bytearray(result.records.to_bytes())), None, now_ms=0)
            await log.flush()
        log.advance_high_watermark(result.high_watermark)
        result.release()

    async def values(self, isolation: Isolation = Isolation.LOG_END) -> list[bytes | None]:
        params = FetchParams(isolation=isolation, may_read_from_follower=True)
        (result,) = await self.manager.fetch(params, [FetchPartition(TOPIC_ID, 0, 0)])
        assert result.error is None, result.error
        data = b"" if result.records is None else result.records.to_bytes()
        result.release()
        return [r.value for pos, header in iter_batches(data) for r in iter_records(data, pos, header)]


@asynccontextmanager
async def run(node_id: int, disk: SimulatedDisk) -> AsyncIterator[Replica]:
    clock = ManualClock()
    log_manager = LogManager(disk, "/data", StorageConfig(), clock, node_id=node_id, run_blocking=in_place)
    manager = ReplicaManager(
        log_manager,
        clock,
        FixedRules(node_id=node_id),
        response_budget=MemoryBudget(1 << 24),
    )
    log_manager.set_listener(manager)
    async with log_manager.run():
        yield Replica(node_id, manager)
        manager.close()


@pytest.fixture
async def replicas() -> AsyncIterator[tuple[Replica, Replica]]:
    """Node 0 leads and node 1 follows, in epoch 0."""
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(run(node_id, SimulatedDisk(node_id))) for node_id in (0, 1)]
        for replica in both:
            await replica.apply(leader=0, epoch=0)
        yield both[0], both[1]


async def test_acks_all_waits_until_the_follower_has_stored_it(
    replicas: tuple[Replica, Replica], nursery: trio.Nursery
) -> None:
    leader, follower = replicas
    await follower.fetch_from(leader)
    results: list[AppendResult] = []

    async def append() -> None:
        results.append(await leader.append(b"a"))

    nursery.start_soon(append)
    await wait_all_tasks_blocked()
    assert await leader.values() == [b"a"]
    assert await leader.values(Isolation.HIGH_WATERMARK) == []
    await follower.fetch_from(leader)
    await wait_all_tasks_blocked()
    assert results == []
    await follower.fetch_from(leader)  # from behind the record: only now it is known to be stored
    await wait_all_tasks_blocked()
    assert (results[0].error, results[0].base_offset) == (None, 0)
    assert await leader.values(Isolation.HIGH_WATERMARK) == [b"a"]
    assert follower.partition.log.high_watermark == 1


async def test_a_follower_that_is_behind_sees_what_the_leader_has(replicas: tuple[Replica, Replica]) -> None:
    leader, follower = replicas
    for value in (b"a", b"b", b"c"):
        assert (await leader.append(value, acks=1)).error is None
    await follower.fetch_from(leader)
    await follower.fetch_from(leader)
    assert await follower.values() == await leader.values() == [b"a", b"b", b"c"]
    assert await follower.values(Isolation.HIGH_WATERMARK) == [b"a", b"b", b"c"]


async def test_after_a_failover_the_old_leader_drops_what_was_never_committed(
    replicas: tuple[Replica, Replica],
) -> None:
    old, new = replicas
    assert (await old.append(b"both", acks=1)).error is None
    await new.fetch_from(old)
    await new.fetch_from(old)
    for value in (b"lost 1", b"lost 2"):
        assert (await old.append(value, acks=1)).error is None
    for replica in (new, old):
        await replica.apply(leader=1, epoch=1)
    assert isinstance((await old.append(b"refused")).error, NotLeaderError)
    assert (await new.append(b"new", acks=1)).base_offset == 1
    await old.fetch_from(new)
    assert await old.values() == [b"both"]
    await old.fetch_from(new)
    await old.fetch_from(new)
    assert await old.values() == await new.values() == [b"both", b"new"]
    assert old.partition.log.high_watermark == new.partition.log.high_watermark == 2
    assert tuple(old.partition.end_offset_for_epoch(0)) == tuple(new.partition.end_offset_for_epoch(0)) == (0, 1)


async def test_an_append_that_was_waiting_is_not_vouched_for(
    replicas: tuple[Replica, Replica], nursery: trio.Nursery
) -> None:
    leader, follower = replicas
    await follower.fetch_from(leader)
    results: list[AppendResult] = []

    async def append() -> None:
        results.append(await leader.append(b"a"))

    nursery.start_soon(append)
    await wait_all_tasks_blocked()
    await leader.apply(leader=1, epoch=1)
    await wait_all_tasks_blocked()
    assert isinstance(results[0].error, NotLeaderError)


async def test_a_restarted_leader_commits_nothing_before_it_hears_of_its_follower() -> None:
    disk = SimulatedDisk()
    async with run(0, disk) as leader:
        await leader.apply(leader=0, epoch=0)
        await leader.append(b"a", acks=1)
    async with run(0, disk) as leader, run(1, SimulatedDisk(1)) as follower:
        for replica in (leader, follower):
            await replica.apply(leader=0, epoch=1)
        assert await leader.values() == [b"a"]
        assert await leader.values(Isolation.HIGH_WATERMARK) == []
        with pytest.raises(OffsetNotAvailableError):
            await finish(find_offset(leader.partition, OffsetSpec.LATEST, isolation=Isolation.HIGH_WATERMARK))
        await follower.fetch_from(leader)
        await follower.fetch_from(leader)
        assert await leader.values(Isolation.HIGH_WATERMARK) == [b"a"]
        found = await finish(find_offset(leader.partition, OffsetSpec.LATEST, isolation=Isolation.HIGH_WATERMARK))
        assert (found.offset, found.leader_epoch) == (1, 1)


class TestCoordinatorsLog:
    """What a coordinator reads when its partition comes to this node, or comes back."""

    @staticmethod
    async def read(leader: Replica, found: list[bytes | type[Exception] | None]) -> None:
        try:
            async with aclosing(ReplicaLog(leader.manager, OneTopic(TOPIC_ID), "t").read(0)) as batches:
                async for data in batches:
                    found += [r.value for pos, header in iter_batches(data) for r in iter_records(data, pos, header)]
        except CoordinatorError as error:
            found.append(type(error))

    async def test_it_waits_until_what_was_appended_before_is_committed(
        self, replicas: tuple[Replica, Replica], nursery: trio.Nursery
    ) -> None:
        leader, follower = replicas
        assert (await leader.append(b"a", acks=1)).error is None
        await follower.fetch_from(leader)
        await follower.fetch_from(leader)
        for value in (b"b", b"c"):
            assert (await leader.append(value, acks=1)).error is None
        found: list[bytes | type[Exception] | None] = []
        nursery.start_soon(self.read, leader, found)
        await wait_all_tasks_blocked()
        assert found == [b"a"]
        await follower.fetch_from(leader)
        await follower.fetch_from(leader)
        await wait_all_tasks_blocked()
        assert found == [b"a", b"b", b"c"]

    async def test_what_no_batch_holds_is_not_called_passing(self, replicas: tuple[Replica, Replica]) -> None:
        leader, _ = replicas
        batch = build_batch([Record(0, 0, b"offset", bytes(2_000_000))])
        with pytest.raises(StateTooLargeError, match="the topic accepts"):
            await finish(ReplicaLog(leader.manager, OneTopic(TOPIC_ID), "t").begin_append(0, batch))

    @pytest.mark.parametrize("ends", ["moves away", "stops"])
    async def test_a_wait_ends_when_the_partition_moves_away_or_the_node_stops(
        self, replicas: tuple[Replica, Replica], nursery: trio.Nursery, ends: str
    ) -> None:
        leader, _ = replicas
        assert (await leader.append(b"a", acks=1)).error is None
        found: list[bytes | type[Exception] | None] = []
        nursery.start_soon(self.read, leader, found)
        await wait_all_tasks_blocked()
        assert found == []
        if ends == "stops":
            leader.manager.close()
        else:
            await leader.apply(leader=1, epoch=1)
        await wait_all_tasks_blocked()
        assert found == [NotCoordinatorError]
