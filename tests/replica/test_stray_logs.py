"""Logs that the metadata says to be elsewhere are kept aside, and come back: the metadata may be the older one."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.kproto.records import Record, build_batch
from ottla.metadata import keys
from ottla.metadata.changes.partition_changes import reassign
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionState, TopicImage
from ottla.metastore.store import Put
from ottla.replica.errors import NotLeaderError
from ottla.replica.high_watermarks import HighWatermarks
from ottla.replica.kept_logs import KeptLogs
from ottla.replica.partition import Role
from ottla.replica.stray_logs import StrayLogs
from ottla.server.telemetry.readiness import unready_reasons
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig, StoreLayout
from ottla.storage.disk import RealDisk
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.inspect.salvage import salvage
from ottla.storage.kept_logs import cut_files, read_kept_logs
from ottla.storage.log.partition_log import AppendOrigin, PartitionLog
from ottla.storage.log_manager import LogManager
from tests.clusters import Cluster, Member, RunCluster, run_cluster
from tests.doubles.worker_threads import InPlace
from tests.partitions import change_partition
from tests.replica.test_damaged_replicas import damage
from tests.replica.test_followers import (
    LAG,
    PATIENT,
    acknowledged,
    create,
    leader_is,
    partition_at,
    values,
    values_of,
)

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
    ("states", "strays"),
    [
        ((ELSEWHERE, ELSEWHERE), [0, 1]),
        ((ELSEWHERE, HERE), [0]),
        # Each start of the supposed leader raises its epoch, so a lower one than the log's says nothing more.
        ((ELSEWHERE._replace(leader_epoch=3), ELSEWHERE), [0, 1]),
        ((ELSEWHERE,), [0, 1]),
        ((), []),
    ],
)
async def test_a_log_that_others_have_by_the_metadata_is_kept_and_named(
    layout: StoreLayout, states: tuple[PartitionState, ...], strays: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk(1)
    config = StorageConfig(store_layout=layout)
    async with logs_of(disk, config) as manager:
        for partition in range(2):
            log = await open_log(manager, partition)
            batch = memoryview(bytearray(build_batch([Record(value=b"x", timestamp_ms=1)])))
            log.append_as_leader(batch, None, leader_epoch=4, origin=AppendOrigin.CLIENT, now_ms=0)
    async with logs_of(disk, config) as manager:
        node_path = manager.node_dir.path
        kept = KeptLogs(disk, node_path, InPlace())
        await kept.load()
        strays_of_node = StrayLogs(manager, kept, HighWatermarks(disk, node_path, InPlace()), node_id=1)
        delta = first_delta(*states)
        await strays_of_node.apply(delta)
        # Later ones are none of its business.
        await strays_of_node.apply(MetadataDelta(delta.after, first_delta(ELSEWHERE, ELSEWHERE).after))
        noted = read_kept_logs(disk, node_path)
        assert [(log.partition, log.topic, log.end_offset, log.is_stray) for log in noted] == [
            (partition, "t", 1, True) for partition in strays
        ]
        assert all(f"t-{partition}" in caplog.text for partition in strays)
        # Nothing of it expires, however old it is by the topic's settings.
        clock = manager.context.clock
        assert isinstance(clock, ManualClock)
        clock.advance(100 * LogConfig().retention_ms)
        await manager.clean()
        for partition in strays:
            stray = manager.get_log(TOPIC_ID, partition)
            assert stray is not None
            assert (stray.log_start_offset, stray.log_end_offset) == (0, 1)
    async with logs_of(disk, config) as manager:
        assert [(await open_log(manager, partition)).log_end_offset for partition in range(2)] == [1, 1]


async def test_a_stray_log_comes_back_when_the_metadata_counts_on_it(run_cluster: RunCluster) -> None:
    """Metadata from an older backup names another node; the newer metadata is found, and put back."""
    async with run_cluster(2, LAG) as cluster:
        await create(cluster, (2,))
        await acknowledged(cluster[2], b"a", b"b")
        older = await move_in_the_metadata(cluster, 2, PartitionState(leader=1, replicas=(1,), isr=(1,)))
        node = await cluster.start(2)
        assert [str(log) for log in read_kept_logs(RealDisk(), node_path(node))] == ["t-0"]
        with pytest.raises(NotLeaderError):
            partition_at(node)
        await move_in_the_metadata(cluster, 2, older)
        node = await cluster.start(2)
        await cluster.until(leader_is(2))
        assert await values(node) == [b"a", b"b"]
        assert read_kept_logs(RealDisk(), node_path(node)) == []


async def test_what_a_leader_cuts_from_a_stray_log_that_follows_is_set_aside(run_cluster: RunCluster) -> None:
    async with run_cluster(2, LAG) as cluster:
        await create(cluster, (2,))
        await acknowledged(cluster[2], b"a", b"b")
        await acknowledged(cluster[2], b"c")
        await move_in_the_metadata(cluster, 2, PartitionState(leader=1, replicas=(1,), isr=(1,), leader_epoch=9))
        node = await cluster.start(2)
        await acknowledged(cluster[1], b"other")
        await change_partition(cluster[1].broker.controller, "t", 0, partial(reassign, target=(1, 2), brokers=(1, 2)))
        await cluster.until(leader_is(1, (1, 2)))
        assert await values(node) == [b"other"]
        (path,) = cut_files(RealDisk(), node_path(node))
        found = [values_of(batch.content[batch.position :]) for batch in salvage(RealDisk(), path)]
        assert found[0] == [b"a", b"b", b"c"][: len(found[0])]
        assert [value for values in found for value in values][-1] == b"c"
        assert read_kept_logs(RealDisk(), node_path(node)) == []


@pytest.mark.parametrize("is_noted", [False, True])
async def test_a_damaged_log_is_cut_when_all_of_it_is_set_aside(
    run_cluster: RunCluster, is_noted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What can be read goes into one file; the bytes of the data file with what cannot be read, into another."""
    written = [letter * 50 for letter in (b"a", b"b", b"c", b"d")]
    async with run_cluster(2, LAG) as cluster:
        await create(cluster, (2,))
        for value in written:
            await acknowledged(cluster[2], value)
        folder = Path(node_path(cluster[2]))
        await move_in_the_metadata(cluster, 2, PartitionState(leader=1, replicas=(1,), isr=(1,), leader_epoch=9))
        damage(folder, written[1], is_noted_too=is_noted)
        node = await cluster.start(2)
        (content,) = [content for content in contents(folder, "**/*.data") if written[2] in content]
        await acknowledged(cluster[1], b"other")
        await change_partition(cluster[1].broker.controller, "t", 0, partial(reassign, target=(1, 2), brokers=(1, 2)))
        with trio.fail_after(20):
            await cluster.until(leader_is(1, (1, 2)))
        assert await values(node) == [b"other"]
        cut, copied = sorted(cut_files(RealDisk(), node_path(node)), key=lambda path: ".data." in path)
        assert next(contents(folder, f"**/{Path(copied).name}")).startswith(content)
        for path in (copied, cut):
            found = [values_of(batch.content[batch.position :])[0] for batch in salvage(RealDisk(), path)]
            assert found == [written[0], written[2], written[3]]
        assert "offset 1 of t-0 cannot be read" in caplog.text
        assert copied in caplog.text


@pytest.mark.parametrize(
    ("operation", "where", "code"),
    [("preadv", "/t.", errno.EIO), ("pwritev", "/set-aside/", errno.EIO), ("pwritev", "/set-aside/", errno.ENOSPC)],
)
async def test_where_the_disk_fails_while_a_log_is_set_aside_nothing_is_cut_and_others_are_followed(
    run_cluster: RunCluster, operation: str, where: str, code: int
) -> None:
    """A disk that fails takes the log offline until the next start. One that is full is tried again."""
    disk = SimulatedDisk(1)
    async with run_cluster(1, PATIENT) as cluster:
        await cluster.start(2, disk=disk)
        await cluster.until(lambda image: sum(1 for _ in image.live_brokers()) == 2)
        await create(cluster, (2,))
        await acknowledged(cluster[2], b"a", b"b")
        await move_in_the_metadata(cluster, 2, PartitionState(leader=1, replicas=(1,), isr=(1,), leader_epoch=9))
        await acknowledged(cluster[1], b"c")
        node = await cluster.start(2, disk=disk)
        fault = disk.faults.add(Fault(FaultKind.ERROR, frozenset({operation}), where, errno=code, count=None))
        await change_partition(cluster[1].broker.controller, "t", 0, partial(reassign, target=(1, 2), brokers=(1, 2)))
        with trio.fail_after(20):
            while not fault.struck or (code == errno.EIO and partition_at(node).role is Role.FOLLOWER):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
            await create(cluster, (1, 2), name="other")
            await cluster.until(lambda image: image.topics["other"].partitions[0].isr == (1, 2))
            await acknowledged(cluster[1], b"d", topic="other")
        assert (partition_at(node).log.log_end_offset, cut_files(disk, node_path(node))) == (2, [])
        assert partition_at(node, topic="other").log.log_end_offset == 1
        assert bool(unready_reasons(node.broker)) == (code == errno.EIO)
        disk.faults.clear()
        if code == errno.EIO:
            assert not leader_is(1, (1, 2))(node.image)
            await cluster.stop(2)
            node = await cluster.start(2, disk=disk)
        await cluster.until(leader_is(1, (1, 2)))
        assert await values(node) == [b"c"]
        (path,) = cut_files(disk, node_path(node))
        assert [values_of(batch.content[batch.position :]) for batch in salvage(disk, path)] == [[b"a", b"b"]]


@pytest.mark.parametrize("replicas", [(2, 1), (2,)])
async def test_what_was_committed_is_set_aside_before_a_replica_is_cut(
    run_cluster: RunCluster, replicas: tuple[int, ...]
) -> None:
    """The older metadata still takes a replica for in sync that lacks records, and has it lead."""
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, replicas)
        await cluster.stop(1)
        await cluster.until(leader_is(2, (2,)))
        await acknowledged(cluster[2], b"a")
        await acknowledged(cluster[2], b"b")
        older = PartitionState(leader=1, replicas=(2, 1), isr=(1,), leader_epoch=9)
        await move_in_the_metadata(cluster, 2, older, asked=3)
        await cluster.start(1)
        await cluster.until(leader_is(1))
        await acknowledged(cluster[1], b"other")
        node = await cluster.start(2)
        await cluster.until(leader_is(1, (1, 2)))
        assert await values(node) == [b"other"]
        (path,) = cut_files(RealDisk(), node_path(node))
        found = [values_of(batch.content[batch.position :])[0] for batch in salvage(RealDisk(), path)]
        assert found == [b"a", b"b"]


async def test_a_kept_log_that_is_moved_away_again_is_not_removed(run_cluster: RunCluster) -> None:
    async with run_cluster(2, LAG) as cluster:
        await create(cluster, (2,))
        await acknowledged(cluster[2], b"a")
        # It follows a node that is not there, so that nothing comes of it.
        await move_in_the_metadata(cluster, 2, PartitionState(leader=3, replicas=(3,), isr=(3,)))
        node = await cluster.start(2)
        (stray,) = read_kept_logs(RealDisk(), node_path(node))
        controller = cluster[1].broker.controller
        for replicas, is_stray in (((3, 2), False), ((3,), True)):
            change = partial(with_replicas, replicas=replicas)
            await change_partition(controller, "t", 0, change)
            await cluster.until(partition_has(replicas))
            assert read_kept_logs(RealDisk(), node_path(node)) == [stray._replace(is_stray=is_stray)]
        log = node.broker.log_manager.get_log(stray.topic_id, 0)
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def contents(folder: Path, pattern: str) -> Iterator[bytes]:
    return (path.read_bytes() for path in folder.glob(pattern))


def partition_has(replicas: tuple[int, ...]) -> Callable[[MetadataImage], bool]:
    return lambda image: image.topics["t"].partitions[0].replicas == replicas


def with_replicas(state: PartitionState, replicas: tuple[int, ...]) -> PartitionState:
    return state._replace(replicas=replicas, partition_epoch=state.partition_epoch + 1)


def node_path(node: Member) -> str:
    return node.broker.log_manager.node_dir.path


async def move_in_the_metadata(
    cluster: Cluster, node_id: int, state: PartitionState, *, asked: int = 1
) -> PartitionState:
    """Stop a node, and let the metadata say this of t-0, as an older or a newer backup would. Returns what it said."""
    image = cluster[asked].image
    before = image.topics["t"].partitions[0]
    await cluster.stop(node_id)
    put = Put(keys.partition(image.topics["t"].topic_id, 0), keys.encode_partition(state, {}))
    await cluster.store.commit([], [put])
    await cluster.until(lambda image: image.topics["t"].partitions[0].leader_epoch >= state.leader_epoch)
    return before


async def test_a_node_that_was_down_keeps_aside_what_was_moved_away(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2), (2, 1), (1, 2))
        await acknowledged(cluster[1], b"a")
        await cluster.stop(2)
        controller = cluster[1].broker.controller
        for index in (0, 2):
            change = partial(reassign, target=(1, 3), brokers=(1, 2, 3))
            await change_partition(controller, "t", index, change)
        await cluster.until(leader_is(1, (1, 3)))
        node = await cluster.start(2)
        held = {partition.index for partition in node.broker.replica_manager.partitions() if partition.topic == "t"}
        assert held == {1}
        assert [(str(log), log.end_offset) for log in read_kept_logs(RealDisk(), node_path(node))] == [("t-0", 1)]
        assert await values(cluster[3]) == [b"a"]
        assert partition_at(node, 1).log.log_end_offset == 0
