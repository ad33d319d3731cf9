"""A start with many topics: what the first image asks of worker threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.replica.delayed_operations import DelayedOperations
from ottla.replica.hosted_partitions import HostedPartitions
from ottla.storage.clock import ManualClock
from ottla.storage.config import StorageConfig
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log_manager import LogManager
from tests.doubles.replica_configs import FixedRules
from tests.replica.test_real_logs import in_place

TOPICS = 600
A_CALL = 256


def first_delta() -> MetadataDelta:
    image = MetadataImage()
    topics = image.topics
    by_id = image.topics_by_id
    changes = []
    for number in range(TOPICS):
        topic = TopicImage(f"topic-{number}", UUID(int=number + 1), (PartitionState.initial((0,)),))
        topics, by_id = topics.set(topic.name, topic), by_id.set(topic.topic_id, topic)
        changes.append(PartitionChange(topic, 0, None, topic.partitions[0]))
    after = replace(image, topics=topics, topics_by_id=by_id)
    return MetadataDelta(image, after, changed_partitions=changes)


async def test_partitions_are_gone_through_while_topics_come_and_go() -> None:
    clock = ManualClock()
    manager = LogManager(SimulatedDisk(1), "/data", StorageConfig(), clock, run_blocking=in_place)
    async with manager.run():
        partitions = HostedPartitions(
            manager,
            clock,
            FixedRules(),
            DelayedOperations(manager.context.turn),
        )
        first = first_delta()
        await partitions.apply(first._replace(changed_partitions=first.changed_partitions[:20]))
        going = iter(partitions)
        seen = [next(going).topic for _ in range(10)]
        deleted = [first.changed_partitions[number].topic for number in (3, 15)]
        later = first.changed_partitions[20:30]
        await partitions.apply(MetadataDelta(first.after, first.after, deleted, changed_partitions=later))
        seen += [partition.topic for partition in going]
        assert seen == [f"topic-{number}" for number in range(20) if number != 15]
        assert len(list(partitions)) == 28


async def test_the_stores_of_hundreds_of_topics_are_opened_by_one_call() -> None:
    calls = 0

    async def run_blocking(function: Callable[[], Any]) -> Any:
        nonlocal calls
        calls += 1
        return await in_place(function)

    clock = ManualClock()
    manager = LogManager(SimulatedDisk(1), "/data", StorageConfig(), clock, run_blocking=run_blocking)
    async with manager.run():
        partitions = HostedPartitions(
            manager,
            clock,
            FixedRules(opened_at_start=TOPICS),
            DelayedOperations(manager.context.turn),
        )
        before = calls
        await partitions.apply(first_delta())
        assert len(list(partitions)) == TOPICS
        assert calls - before <= -(-TOPICS // A_CALL)
