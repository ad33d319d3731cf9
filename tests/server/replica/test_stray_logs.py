"""What was moved away from a node while it was down leaves no files there, and nothing else goes with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.kproto.records import Record, build_batch
from ottla.server.metadata.image import MetadataDelta, MetadataImage, PartitionState, TopicImage
from ottla.server.metadata.partition_changes import reassign
from ottla.server.replica.stray_logs import StrayLogs
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig, StoreLayout
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log.partition_log import AppendOrigin, PartitionLog
from ottla.storage.log_manager import LogManager
from tests.clusters import RunCluster, run_cluster
from tests.server.replica.test_followers import LAG, acknowledged, create, leader_is, partition_at, values

__all__ = ["run_cluster"]

TOPIC_ID = UUID(int=7)
ELSEWHERE = PartitionState(leader=2, replicas=(2, 3), isr=(2, 3), leader_epoch=5)
HERE = PartitionState(leader=1, replicas=(1, 2), isr=(1, 2), leader_epoch=5)


async def in_place(function: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function()


@asynccontextmanager
async def logs_of(disk: SimulatedDisk, config: StorageConfig) -> AsyncIterator[LogManager]:
    manager = LogManager(disk, "/data", config, ManualClock(), node_id=1, run_blocking=in_place)
    async with manager.run():
        yield manager


async def open_log(manager: LogManager, partition: int) -> PartitionLog:
    return await manager.open_log(TOPIC_ID, "t", partition, LogConfig())


def first_delta(*states: PartitionState) -> MetadataDelta:
    before = MetadataImage()
    topic = TopicImage("t", TOPIC_ID, states)
    after = replace(
        before,
        revision=1,
        topics=before.topics.set("t", topic) if states else before.topics,
        topics_by_id=before.topics_by_id.set(TOPIC_ID, topic) if states else before.topics_by_id,
    )
    return MetadataDelta(before, after)


@pytest.mark.parametrize("layout", list(StoreLayout))
@pytest.mark.parametrize(
    ("states", "left"),
    [
        ((ELSEWHERE, ELSEWHERE), []),
        ((ELSEWHERE, HERE), [1]),
        # The metadata knows less than the log does, so it is old.
        ((ELSEWHERE._replace(leader_epoch=3), ELSEWHERE), [0]),
        ((ELSEWHERE,), [1]),
        ((), [0, 1]),
    ],
)
async def test_a_log_goes_where_the_metadata_names_other_nodes(
    layout: StoreLayout, states: tuple[PartitionState, ...], left: list[int]
) -> None:
    disk = SimulatedDisk(1)
    config = StorageConfig(store_layout=layout)
    async with logs_of(disk, config) as manager:
        for partition in range(2):
            log = await open_log(manager, partition)
            batch = memoryview(bytearray(build_batch([Record(value=b"x")])))
            log.append_as_leader(batch, None, leader_epoch=4, origin=AppendOrigin.CLIENT, now_ms=0)
    async with logs_of(disk, config) as manager:
        strays = StrayLogs(manager, node_id=1)
        delta = first_delta(*states)
        await strays.apply(delta)
        # Later ones are none of its business.
        await strays.apply(MetadataDelta(delta.after, first_delta(ELSEWHERE, ELSEWHERE).after))
        if not left and layout is StoreLayout.PER_TOPIC:
            assert not any("t." in name for name in disk.listdir(manager.node_dir.path))
    async with logs_of(disk, config) as manager:
        ends = [(await open_log(manager, partition)).log_end_offset for partition in range(2)]
        assert ends == [int(partition in left) for partition in range(2)]


async def test_a_node_that_was_down_removes_what_was_moved_away(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2), (2, 1), (1, 2))
        await acknowledged(cluster[1], b"a")
        topic_id = cluster[1].image.topics["t"].topic_id
        await cluster.stop(2)
        controller = cluster[1].broker.controller
        for index in (0, 2):
            change = partial(reassign, target=(1, 3), brokers=(1, 2, 3))
            await controller.change_partition("t", index, change)
        await cluster.until(leader_is(1, (1, 3)))
        node = await cluster.start(2)
        held = {partition.index for partition in node.broker.replica_manager.partitions() if partition.topic == "t"}
        assert held == {1}
        logs = node.broker.log_manager
        assert [logs.get_log(topic_id, index) is not None for index in range(3)] == [False, True, False]
        assert {key[-4:] for store in logs.stores() for key in (*store.logs, *store.snapshots)} == {b"\0\0\0\1"}
        assert await values(cluster[3]) == [b"a"]
        assert partition_at(node, 1).log.log_end_offset == 0
