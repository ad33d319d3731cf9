"""Three nodes that replicate: what was acknowledged by all in sync survives whatever happens to one of them."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli.folders.backup.archive import back_up, restore
from ottla.kproto.records import Record, build_batch, iter_batches, iter_records
from ottla.metadata import keys
from ottla.metadata.changes.partition_changes import elect_preferred, reassign
from ottla.metadata.changes.topic_changes import USE_DEFAULT, NewTopic
from ottla.metadata.image import NO_LEADER, MetadataDelta, MetadataImage
from ottla.metastore.sqlite import open_sqlite_store
from ottla.metastore.store import MetadataStore, Operation, Put
from ottla.replica.append import AppendResult, Records, TopicIdPartition
from ottla.replica.errors import NotEnoughReplicasError, NotLeaderError
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.replica.high_watermarks import FILE
from ottla.replica.partition import Partition, Role
from ottla.storage.clock import SystemClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import StoreOfflineError
from ottla.storage.log_manager import LogManager
from ottla.storage.node_dir import NodeDir
from ottla.storage.store.segment_files import LOSS_FILE
from tests.clusters import Cluster, Member, RunCluster, run_cluster
from tests.partitions import change_partition

__all__ = ["run_cluster"]

LAG = {"replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "100"}
# Nobody leaves for being slow for once: what is acknowledged is then with the leader alone, and may be lost with it.
PATIENT = LAG | {"replica.lag.time.max.ms": "30000", "broker.session.timeout.ms": "30000"}


async def create(cluster: Cluster, *assignments: tuple[int, ...], name: str = "t", **configs: str) -> None:
    settings = {setting.replace("_", "."): value for setting, value in configs.items()}
    topic = NewTopic(name, USE_DEFAULT, USE_DEFAULT, assignments=dict(enumerate(assignments)), configs=settings)
    created = await next(iter(cluster.nodes.values())).broker.controller.create_topic(topic)
    await cluster.until(lambda image: image.topic_by_id(created.topic_id) is not None)


def partition_at(node: Member, index: int = 0, topic: str = "t") -> Partition:
    return node.broker.replica_manager.get_partition(node.image.topics[topic].topic_id, index)


def leader_is(leader: int, isr: tuple[int, ...] | None = None) -> Callable[[MetadataImage], bool]:
    def check(image: MetadataImage) -> bool:
        state = image.partition("t", 0)
        return state is not None and state.leader == leader and (isr is None or set(state.isr) == set(isr))

    return check


def out_of_sync(node_id: int) -> Callable[[MetadataImage], bool]:
    return lambda image: node_id not in image.topics["t"].partitions[0].isr


async def append(
    node: Member, *values: bytes, acks: int = -1, timeout_ms: int = 10_000, topic: str = "t"
) -> AppendResult:
    batch = build_batch([Record(value=value, timestamp_ms=0) for value in values])
    key = TopicIdPartition(node.image.topics[topic].topic_id, 0)
    entries = {key: Records(memoryview(bytearray(batch)))}
    return (await node.broker.replica_manager.append(entries, required_acks=acks, timeout_ms=timeout_ms))[key]


async def acknowledged(node: Member, *values: bytes, topic: str = "t") -> None:
    result = await append(node, *values, topic=topic)
    assert result.error is None, result.error


async def content(node: Member, index: int = 0) -> bytes:
    """All of a partition's log, byte for byte."""
    log = partition_at(node, index).log
    data = b""
    offset = log.log_start_offset
    while offset < log.flushed_end_offset:
        chain, offset = await log.read_batches(offset, log.flushed_end_offset)
        data += chain.to_bytes()
        chain.release()
    return data


def values_of(data: bytes) -> list[bytes | None]:
    return [record.value for pos, header in iter_batches(data) for record in iter_records(data, pos, header)]


async def values(node: Member) -> list[bytes | None]:
    return values_of(await content(node))


async def until_equal(cluster: Cluster, *nodes: int, index: int = 0) -> bytes:
    """Wait until the logs of the nodes are equal, byte for byte, and all of it is committed everywhere."""
    with trio.fail_after(20):
        while True:
            partitions = [partition_at(cluster[node], index) for node in nodes]
            ends = {it.log.flushed_end_offset for it in partitions} | {it.log.high_watermark for it in partitions}
            if len(ends) == 1:
                break
            await trio.sleep(0.01)
    contents = {await content(cluster[node], index) for node in nodes}
    assert len(contents) == 1
    return contents.pop()


async def test_followers_have_what_the_leader_has_byte_for_byte(run_cluster: RunCluster) -> None:
    async with run_cluster(3) as cluster:
        await create(cluster, (1, 2, 3), (2, 3, 1))
        for number in range(20):
            await acknowledged(cluster[1], b"%d" % number, b"more")
        data = await until_equal(cluster, 1, 2, 3)
        assert len(values_of(data)) == 40
        for follower in (2, 3):
            log = partition_at(cluster[follower]).log
            assert log.end_offset_for_epoch(log.latest_epoch) == (partition_at(cluster[1]).leader_epoch, 40)
        assert cluster[3].broker.replica_manager.counters.replicated_bytes == len(data)


async def test_nothing_is_acknowledged_that_not_all_in_sync_have(run_cluster: RunCluster) -> None:
    async with run_cluster(3) as cluster:
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster[1], b"a")
        end = partition_at(cluster[1]).log.log_end_offset
        assert all(partition_at(cluster[node]).log.flushed_end_offset >= end for node in (2, 3))


async def test_the_death_of_a_leader(run_cluster: RunCluster) -> None:
    """What was acknowledged is there; what only the dead had is gone when it comes back, and it is in sync again."""
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster[1], b"a", b"b")
        await cluster.kill(1)
        await cluster.until(leader_is(2, (2, 3)))
        await acknowledged(cluster[2], b"c")
        await cluster.start(1)
        await cluster.until(leader_is(2, (1, 2, 3)))
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b", b"c"]


async def test_what_was_never_committed_is_cut_off(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2, 3), min_insync_replicas="2")
        await acknowledged(cluster[1], b"a")
        for follower in (2, 3):
            await cluster.kill(follower)
        result = await append(cluster[1], b"never committed", acks=-1, timeout_ms=200)
        assert result.error is not None
        assert await values(cluster[1]) == [b"a", b"never committed"]
        await cluster.kill(1)
        # The two that are back do not know of it, and go on.
        for node in (2, 3):
            await cluster.start(node)
        await cluster.until(lambda image: leader_is(2)(image) or leader_is(3)(image))
        leader = cluster[2].image.topics["t"].partitions[0].leader
        await cluster.until(leader_is(leader, (2, 3)))
        await acknowledged(cluster[leader], b"b")
        await cluster.start(1)
        await cluster.until(leader_is(leader, (1, 2, 3)))
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b"]
        epochs = {partition_at(cluster[node]).log.epochs.to_bytes() for node in (1, 2, 3)}
        assert len(epochs) == 1


async def test_the_death_of_a_follower_holds_up_nobody_for_long(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster[1], b"a")
        await cluster.kill(3)
        await acknowledged(cluster[1], b"b")  # once it has left the set
        assert set(cluster[1].image.topics["t"].partitions[0].isr) == {1, 2}
        await cluster.start(3)
        await cluster.until(leader_is(1, (1, 2, 3)))
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b"]
        sets = cluster[1].broker.replica_manager.in_sync_sets
        with trio.fail_after(20):  # it is counted when the leader has heard that its change was made
            while not sets.expands:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
        assert sets.expands == 1


async def test_two_of_three_dead(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2, 3), min_insync_replicas="2")
        await acknowledged(cluster[1], b"a")
        for node in (2, 3):
            await cluster.kill(node)
        await cluster.until(leader_is(1, (1,)))
        assert isinstance((await append(cluster[1], b"refused")).error, NotEnoughReplicasError)
        assert await values(cluster[1]) == [b"a"]
        await cluster.start(3)
        await cluster.until(leader_is(1, (1, 3)))
        await acknowledged(cluster[1], b"b")
        assert values_of(await until_equal(cluster, 1, 3)) == [b"a", b"b"]


async def test_who_has_all_that_is_committed_leads_though_it_was_not_in_sync_last(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2, 3), min_insync_replicas="2")
        await acknowledged(cluster[1], b"a")
        await until_equal(cluster, 1, 2, 3)
        for node_id in (3, 2):
            await cluster.kill(node_id)
            await cluster.until(out_of_sync(node_id))
        assert cluster[1].image.topics["t"].partitions[0].elr == (2,)
        await cluster.kill(1)
        # Node 3 left while there were enough: what was committed without it, it does not have.
        await cluster.start(3)
        await cluster.until(leader_is(NO_LEADER), 3)
        await cluster.start(2)
        await cluster.until(leader_is(2, (2, 3)), 2, 3)
        await acknowledged(cluster[2], b"b")
        assert values_of(await until_equal(cluster, 2, 3)) == [b"a", b"b"]


async def test_an_orderly_stop_hands_over_before_anybody_misses_the_node(run_cluster: RunCluster) -> None:
    async with run_cluster(3, {"broker.session.timeout.ms": "60000"}) as cluster:
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster[1], b"a")
        await cluster.stop(1)
        await cluster.until(leader_is(2, (2, 3)))
        await acknowledged(cluster[2], b"b")
        await cluster.start(1)
        await cluster.until(leader_is(2, (1, 2, 3)))
        await change_partition(cluster[2].broker.controller, "t", 0, lambda state: elect_preferred(state, {1, 2, 3}))
        await cluster.until(leader_is(1))
        await acknowledged(cluster[1], b"c")
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b", b"c"]


async def test_an_old_leader_that_wakes_acknowledges_nothing(run_cluster: RunCluster) -> None:
    """It is cut off from the store and believes to lead; nobody follows it any more."""
    async with run_cluster(3) as cluster:
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster[1], b"a")
        old = cluster[1]
        old.store.is_cut_off = True
        await cluster.until(lambda image: image.partition("t", 0).leader == 2, 2, 3)  # type: ignore[union-attr]
        partition = partition_at(old)
        if partition.role is Role.LEADER:
            result = await append(old, b"never acknowledged", timeout_ms=300)
            assert result.error is not None
        await acknowledged(cluster[2], b"b")
        assert values_of(await until_equal(cluster, 2, 3)) == [b"a", b"b"]


async def test_a_disk_that_was_emptied_is_filled_again_before_it_counts(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2, 3))
        for number in range(5):
            await acknowledged(cluster[1], b"%d" % number)
        await cluster.kill(1)
        await cluster.start(1, folder=cluster[2].broker.log_manager.node_dir.path + "-empty")  # type: ignore[arg-type]
        await cluster.until(lambda image: leader_is(2)(image) or leader_is(3)(image))
        leader = cluster[2].image.topics["t"].partitions[0].leader
        await cluster.until(leader_is(leader, (1, 2, 3)))
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"%d" % number for number in range(5)]


async def test_others_go_on_where_a_leaders_disk_fails(run_cluster: RunCluster) -> None:
    disk = SimulatedDisk(1)
    async with run_cluster(2, LAG) as cluster:
        await cluster.start(3, disk=disk)
        await cluster.until(lambda image: sum(1 for _ in image.live_brokers()) == 3)
        await create(cluster, (3, 1, 2), min_insync_replicas="2")
        await acknowledged(cluster[3], b"a")
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO))
        assert isinstance((await append(cluster[3], b"lost")).error, StoreOfflineError)
        await cluster.until(leader_is(1, (1, 2)))
        await acknowledged(cluster[1], b"b")
        assert values_of(await until_equal(cluster, 1, 2)) == [b"a", b"b"]


@pytest.mark.parametrize("starts_early", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_leader_whose_machine_lost_power_does_not_lead_with_less(
    run_cluster: RunCluster, seed: int, *, starts_early: bool
) -> None:
    """It comes back at once, before its session has ended, and others have what it has lost.

    The first start may end before it could tell the cluster.
    """
    disk = SimulatedDisk(seed)
    async with run_cluster(2, PATIENT) as cluster:
        await cluster.start(3, disk=disk)
        await cluster.until(lambda image: sum(1 for _ in image.live_brokers()) == 3)
        await create(cluster, (3, 1, 2))
        await acknowledged(cluster[3], b"a", b"b")
        folder = Path(cluster[3].broker.log_manager.node_dir.path).parent
        left = await cluster.lose_power(3, disk)
        if starts_early:
            early = NodeDir(left, str(folder), 3)
            early.open()
            early.close(clean=True)
        await cluster.start(3, disk=left)
        await cluster.until(lambda image: leader_is(1)(image) or leader_is(2)(image))
        leader = cluster[1].image.topics["t"].partitions[0].leader
        await cluster.until(leader_is(leader, (1, 2, 3)))
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b"]


async def test_a_leader_whose_folder_was_replaced_by_an_older_copy_does_not_lead_with_less(
    run_cluster: RunCluster, tmp_path: Path
) -> None:
    """It was copied while the node was stopped. The node comes back before its session has ended."""
    async with run_cluster(3, PATIENT) as cluster:
        await create(cluster, (3, 1, 2))
        await acknowledged(cluster[3], b"a")
        folder = Path(cluster[3].broker.log_manager.node_dir.path).parent
        await cluster.stop(3)
        shutil.copytree(folder, tmp_path / "copy")
        await cluster.start(3)
        await cluster.until(lambda image: set(image.topics["t"].partitions[0].isr) == {1, 2, 3})
        await change_partition(cluster[1].broker.controller, "t", 0, lambda state: elect_preferred(state, {1, 2, 3}))
        await cluster.until(leader_is(3))
        await acknowledged(cluster[3], b"b")
        await cluster.kill(3)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "copy", folder)
        await cluster.start(3)
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b"]


async def copy_metadata(source: MetadataStore, path: Path) -> None:
    copy = await open_sqlite_store(path, lambda: 0)
    await copy.commit([], [Put(entry.key, entry.value) for entry in (await source.list("")).entries if not entry.lease])
    await copy.close()


@pytest.mark.parametrize("with_metadata", [False, True])
async def test_a_leader_whose_folder_was_restored_from_a_backup_does_not_lead_with_less(
    run_cluster: RunCluster, tmp_path: Path, *, with_metadata: bool
) -> None:
    """The backup was made while the node ran as it did until it died, and the machine has not gone down. If the
    metadata of then is in the backup, the cluster that goes on has a later one.
    """
    async with run_cluster(3, PATIENT) as cluster:
        await create(cluster, (3, 1, 2))
        await acknowledged(cluster[3], b"a")
        folder = Path(cluster[3].broker.log_manager.node_dir.path).parent
        shutil.copytree(folder, tmp_path / "as it was")
        if with_metadata:
            await copy_metadata(cluster[3].store, tmp_path / "as it was" / "cluster.sqlite")
        back_up(tmp_path / "as it was", tmp_path / "backup", "1.0", lambda done, total: None)
        await acknowledged(cluster[3], b"b")
        await cluster.kill(3)
        shutil.rmtree(folder)
        await trio.to_thread.run_sync(restore, tmp_path / "backup", folder, lambda done, total: None)
        await cluster.start(3)
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b"]


async def test_a_node_that_has_stopped_is_not_taken_back_by_who_saw_it_catch_up(
    run_cluster: RunCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader asks the metadata store for that just as it stops."""
    async with run_cluster(2, LAG) as cluster:
        await create(cluster, (1, 2))
        await cluster.kill(2)
        await cluster.until(leader_is(1, (1,)))
        leader = cluster[1]
        commit, asks, goes_on = leader.store.commit, trio.Event(), trio.Event()

        async def commit_slowly(compares: Any, operations: Sequence[Operation]) -> int | None:
            if (
                any(isinstance(it, Put) and it.key.startswith(keys.PARTITIONS) for it in operations)
                and not asks.is_set()
            ):
                asks.set()
                await goes_on.wait()
            return await commit(compares, operations)

        monkeypatch.setattr(leader.store, "commit", commit_slowly)
        await cluster.start(2)
        await asks.wait()
        await cluster.stop(2)
        seen: list[tuple[int, ...]] = []

        async def note(delta: MetadataDelta) -> None:
            seen.extend(change.after.isr for change in delta.changed_partitions)

        leader.broker.controller.subscribe(note)
        goes_on.set()
        await acknowledged(leader, b"a")
        assert seen == []


def remove_data(folder: Path) -> None:
    """An accident: the files with the records and their indexes are gone, those beside them are not."""
    for path in [*folder.rglob("*.data"), *folder.rglob("*.index")]:
        path.unlink()


def is_noted(folder: Path) -> bool:
    """Whether a folder says that its replicas may lack records."""
    return any(folder.rglob(LOSS_FILE))


@pytest.mark.parametrize("starts_early", [False, True])
async def test_a_replica_whose_files_are_lost_lets_others_lead_and_is_filled_from_them(
    run_cluster: RunCluster, *, starts_early: bool
) -> None:
    """The first start may end before it could tell the cluster."""
    async with run_cluster(3, PATIENT) as cluster:
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster[1], b"a", b"b")
        await until_equal(cluster, 1, 2, 3)
        folder = Path(cluster[1].broker.log_manager.node_dir.path)
        topic_id = cluster[1].image.topics["t"].topic_id
        await cluster.kill(1)
        remove_data(folder)
        if starts_early:
            early = LogManager(RealDisk(), folder.parent, StorageConfig(), SystemClock(), node_id=1)
            async with early.run():
                assert (await early.open_log(topic_id, "t", 0, LogConfig())).may_lack_records
        await cluster.start(1)
        await cluster.until(lambda image: leader_is(2)(image) or leader_is(3)(image))
        leader = cluster[2].image.topics["t"].partitions[0].leader
        await acknowledged(cluster[leader], b"c")
        await cluster.until(leader_is(leader, (1, 2, 3)))
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b", b"c"]
        # The cluster knows, and the next start need not say it again.
        with trio.fail_after(5):
            while is_noted(folder):  # noqa: ASYNC110 (nobody could set an event)
                await trio.sleep(0.01)


async def test_a_replica_that_is_far_behind_begins_where_its_leader_does(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster[1], b"a")
        await cluster.kill(3)
        for number in range(10):
            await acknowledged(cluster[1], b"%d" % number)
        key = TopicIdPartition(cluster[1].image.topics["t"].topic_id, 0)
        deleted = await cluster[1].broker.replica_manager.delete_records({key: 6}, timeout_ms=10_000)
        assert deleted[key].error is None
        await cluster.start(3)
        await cluster.until(leader_is(1, (1, 2, 3)))
        await until_equal(cluster, 1, 2, 3)
        assert [partition_at(cluster[node]).log.log_start_offset for node in (1, 2, 3)] == [6, 6, 6]


async def test_a_replica_begins_where_its_leader_does_within_a_batch(run_cluster: RunCluster) -> None:
    """The leader's first batch begins before its log does."""
    async with run_cluster(2, LAG) as cluster:
        await create(cluster, (1,))
        await acknowledged(cluster[1], b"a", b"b", b"c")
        key = TopicIdPartition(cluster[1].image.topics["t"].topic_id, 0)
        deleted = await cluster[1].broker.replica_manager.delete_records({key: 1}, timeout_ms=10_000)
        assert deleted[key].error is None
        controller = cluster[1].broker.controller
        await change_partition(controller, "t", 0, lambda state: reassign(state, (1, 2), (1, 2)))
        await cluster.until(leader_is(1, (1, 2)))
        await acknowledged(cluster[1], b"d")
        await until_equal(cluster, 1, 2)
        logs = [partition_at(cluster[node]).log for node in (1, 2)]
        assert [(log.log_start_offset, log.log_end_offset) for log in logs] == [(1, 4), (1, 4)]


async def test_a_partition_moves_to_other_nodes(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1,))
        await acknowledged(cluster[1], b"a")
        controller = cluster[2].broker.controller
        await change_partition(controller, "t", 0, lambda state: reassign(state, (2, 3), (1, 2, 3)))
        await cluster.until(leader_is(2, (2, 3)))
        state = cluster[1].image.topics["t"].partitions[0]
        assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((2, 3), (), ())
        await acknowledged(cluster[2], b"b")
        assert values_of(await until_equal(cluster, 2, 3)) == [b"a", b"b"]
        with pytest.raises(NotLeaderError):
            partition_at(cluster[1])


async def test_all_nodes_die_and_come_back(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster[1], b"a")
        for node in (3, 2, 1):
            await cluster.kill(node)
        for node in (2, 3, 1):
            await cluster.start(node)
        await cluster.until(lambda image: set(image.topics["t"].partitions[0].isr) == {1, 2, 3})
        leader = cluster[1].image.topics["t"].partitions[0].leader
        assert leader != NO_LEADER
        await acknowledged(cluster[leader], b"b")
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b"]


async def test_a_topic_is_deleted_while_it_is_followed(run_cluster: RunCluster) -> None:
    async with run_cluster(3) as cluster:
        await create(cluster, (1, 2, 3))
        topic_id = cluster[1].image.topics["t"].topic_id
        await acknowledged(cluster[1], b"a")
        await cluster[2].broker.controller.delete_topics([topic_id])
        await cluster.until(lambda image: image.topic("t") is None)
        await create(cluster, (2, 3, 1))
        await acknowledged(cluster[2], b"b")
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"b"]


async def test_a_follower_serves_what_is_committed(run_cluster: RunCluster) -> None:
    async with run_cluster(2) as cluster:
        await create(cluster, (1, 2))
        await acknowledged(cluster[1], b"a")
        await until_equal(cluster, 1, 2)
        topic_id = cluster[2].image.topics["t"].topic_id
        params = FetchParams(may_read_from_follower=True, max_wait_ms=1000, min_bytes=1)
        (result,) = await cluster[2].broker.replica_manager.fetch(params, [FetchPartition(topic_id, 0, 0)])
        assert result.records is not None
        assert values_of(result.records.to_bytes()) == [b"a"]
        result.release()


@pytest.mark.parametrize("has_lost_power", [False, True])
async def test_a_node_that_starts_alone_shows_what_was_committed_before(
    run_cluster: RunCluster, *, has_lost_power: bool
) -> None:
    """After a loss of power its log may have again what was cut off it: nothing is shown, at the start after the next
    one either.
    """
    disk = SimulatedDisk(1)
    async with run_cluster(1, {**LAG, "replica.high.watermark.checkpoint.interval.ms": "100"}) as cluster:
        await cluster.start(2, disk=disk)
        await cluster.until(lambda image: sum(1 for _ in image.live_brokers()) == 2)
        await create(cluster, (1, 2))
        await acknowledged(cluster[1], b"a", b"b")
        await until_equal(cluster, 1, 2)
        await cluster[2].broker.log_manager.flush_all()
        path = f"{cluster[2].broker.log_manager.node_dir.path}/{FILE}"
        with trio.fail_after(20):
            while not disk.exists(path) or b": [2, " not in disk.read_file(path):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.02)
        await cluster.kill(1)
        if has_lost_power:
            disk = await cluster.lose_power(2, disk)
            await cluster.start(2, disk=disk)
        await cluster.kill(2)
        await cluster.start(2, disk=disk)
        partition = partition_at(cluster[2])
        assert (partition.role, partition.log.log_end_offset) == (Role.FOLLOWER, 2)
        assert partition.log.high_watermark == (0 if has_lost_power else 2)
