"""What a start leaves for later: which partitions, in which order they are opened, and what comes in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.metadata.internal_topics import CONSUMER_OFFSETS
from ottla.replica.delayed_operations import DelayedOperations
from ottla.replica.errors import NotLeaderError
from ottla.replica.hosted_partitions import HostedPartitions
from ottla.replica.partition import Partition
from ottla.settings.mirrored import MIRROR_SETTING
from ottla.storage.clock import ManualClock
from ottla.storage.config import StorageConfig
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log_manager import LogManager
from ottla.storage.turn import Turn
from tests.doubles.replica_configs import FixedRules
from tests.replica.test_real_logs import in_place

ALONE = PartitionState.initial((0,))


def delta_of(*topics: TopicImage) -> MetadataDelta:
    """The first of a start."""
    image = MetadataImage()
    after = replace(
        image,
        revision=1,
        topics=image.topics.update({topic.name: topic for topic in topics}),
        topics_by_id=image.topics_by_id.update({topic.topic_id: topic for topic in topics}),
    )
    changes = [
        PartitionChange(topic, index, None, state) for topic in topics for index, state in enumerate(topic.partitions)
    ]
    return MetadataDelta(image, after, changed_partitions=changes)


def topic(number: int, state: PartitionState = ALONE, name: str = "", setting: str = "") -> TopicImage:
    return TopicImage(name or f"t{number}", UUID(int=number), (state,), {setting: "{}"} if setting else {})


class Noted(DelayedOperations):
    """Notes of which topics partitions have changed."""

    def __init__(self, turn: Turn, topics: list[str]) -> None:
        super().__init__(turn)
        self._topics = topics

    def signal(self, partition: Partition) -> None:
        self._topics.append(partition.topic)


class Started:
    """Partitions that the first delta was applied to, and the order in which they were opened."""

    def __init__(self, manager: LogManager) -> None:
        self.manager = manager
        self.opened: list[str] = []
        self.partitions = HostedPartitions(
            manager,
            ManualClock(),
            FixedRules(opened_at_start=1),
            Noted(manager.context.turn, self.opened),
        )


@asynccontextmanager
async def started(*topics: TopicImage, disk: SimulatedDisk | None = None) -> AsyncIterator[Started]:
    disk = disk or SimulatedDisk(1)
    manager = LogManager(disk, "/data", StorageConfig(), ManualClock(), run_blocking=in_place)
    async with manager.run():
        start = Started(manager)
        await start.partitions.apply(delta_of(*topics))
        yield start


async def test_only_what_nobody_else_asks_for_is_left() -> None:
    copied = PartitionState.initial((0, 1))
    out_of_sync = ALONE._replace(isr=())
    at_once = [
        topic(3, copied),
        topic(4, out_of_sync),
        topic(5, name=CONSUMER_OFFSETS),
        topic(6, name="mirrored", setting=MIRROR_SETTING),
    ]
    async with started(topic(1), topic(2), *at_once) as start:
        assert start.opened == [each.name for each in at_once]
        assert len(start.partitions.unopened.left) == 2
        with pytest.raises(NotLeaderError):
            start.partitions.get(UUID(int=1), 0)
        await start.partitions.open_rest()
        assert start.partitions.get(UUID(int=1), 0).is_leader
        assert not start.partitions.unopened.left


async def test_few_partitions_are_opened_at_once() -> None:
    async with started(topic(1)) as start:
        assert start.opened == ["t1"]


async def test_what_somebody_waits_for_is_opened_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replica.hosted_partitions._OPENED_LATER", 2)
    async with started(*map(topic, range(1, 8))) as start:
        unopened = start.partitions.unopened
        async with trio.open_nursery() as nursery:
            nursery.start_soon(unopened.wait, [(UUID(int=6), 0), (UUID(int=5), 0)])
            await wait_all_tasks_blocked()
            nursery.start_soon(start.partitions.open_rest)
        assert start.opened[:2] == ["t6", "t5"]
        assert sorted(start.opened) == [f"t{number}" for number in range(1, 8)]
        await unopened.wait([(UUID(int=1), 0)])
        await unopened.wait_for_all()


async def test_what_is_opened_before_the_task_waits_is_not_waited_for() -> None:
    """A request is begun in the event loop's wait, and its task comes to the wait later."""
    async with started(topic(1), topic(2)) as start:
        key = (UUID(int=1), 0)
        wait = next(start.partitions.unopened.until_open([key]))
        await start.partitions.open_rest()
        with trio.fail_after(60):
            await wait()


async def test_nobody_is_woken_for_what_others_wait_for() -> None:
    async with started(*map(topic, range(1, 5))) as start:
        unopened = start.partitions.unopened
        woken: list[int] = []

        async def wait_for(number: int) -> None:
            await unopened.wait([(UUID(int=number), 0)])
            woken.append(number)

        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(wait_for, number)
            await wait_all_tasks_blocked()
            unopened.take((UUID(int=2), 0))
            await wait_all_tasks_blocked()
            assert woken == [2]
            await start.partitions.open_rest()


async def test_what_is_left_can_change_and_be_deleted() -> None:
    disk = SimulatedDisk(1)
    topics = [topic(number) for number in range(1, 4)]
    async with started(*topics, disk=disk) as start:
        await start.partitions.open_rest()
        for each in topics:
            start.partitions.get(each.topic_id, 0).log.note_log_start()
        await start.manager.flush_all()
        folders = {each.name: start.partitions.get(each.topic_id, 0).log.store.files.directory for each in topics}
    async with started(*topics, disk=disk) as start:
        before = delta_of(*topics).after
        moved = topics[1]._replace(partitions=(ALONE._replace(replicas=(1,), isr=(1,), leader=1),))
        after = delta_of(moved, topics[2]).after
        change = PartitionChange(moved, 0, ALONE, moved.partitions[0])
        await start.partitions.apply(MetadataDelta(before, after, [topics[0]], changed_partitions=[change]))
        assert not disk.exists(folders["t1"])
        assert not disk.exists(folders["t2"])
        assert disk.exists(folders["t3"])
        assert len(start.partitions.unopened.left) == 1
