"""`ottla restore --metadata-from-data` of a folder with several nodes: nothing that any of them has is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.cli import main
from ottla.kproto.records import Record, build_batch
from ottla.metadata import keys
from ottla.metadata.changes.partition_changes import reassign
from ottla.metadata.image import PartitionState, TopicImage
from ottla.metastore.sqlite import open_sqlite_store
from ottla.metastore.store import Put
from ottla.storage.clock import ManualClock, SystemClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.inspect.salvage import salvage
from ottla.storage.kept_logs import cut_files, read_kept_logs
from ottla.storage.log_manager import LogManager
from tests.clusters import Cluster, RunCluster, run_cluster
from tests.partitions import change_partition
from tests.replica.test_followers import acknowledged, create, leader_is, partition_at, until_equal, values_of
from tests.replica.test_stray_logs import partition_has

__all__ = ["run_cluster"]

TOPIC_ID, OLDER_ID = UUID(int=7), UUID(int=8)


async def fill(
    data_dir: Path,
    node_id: int,
    batches: Sequence[tuple[int, bytes]],
    replicas: tuple[int, ...],
    *,
    partition_epoch: int = 0,
    topic_id: UUID = TOPIC_ID,
    now_ms: int = 1_700_000_000_000,
) -> None:
    """A node's log of t-0, of batches in these leader epochs, and its description of the topic."""
    manager = LogManager(RealDisk(), data_dir, StorageConfig(), ManualClock(now_ms), node_id=node_id)
    state = PartitionState.initial(replicas)._replace(partition_epoch=partition_epoch)
    async with manager.run():
        log = await manager.open_log(topic_id, "t", 0, LogConfig())
        log.store.describe(lambda: keys.encode_described_topic(TopicImage("t", topic_id, (state,))))
        for epoch, value in batches:
            batch = memoryview(bytearray(build_batch([Record(value=value, timestamp_ms=now_ms)])))
            log.append_as_leader(batch, None, leader_epoch=epoch, now_ms=now_ms)
        await manager.flush_all()


async def restored_state(data_dir: Path) -> PartitionState:
    store = await open_sqlite_store(data_dir / "cluster.sqlite", SystemClock().time_ms)
    entry = await store.get(keys.partition(TOPIC_ID, 0))
    assert entry is not None
    await store.close()
    return keys.decode_partition(entry.value, {})


def restore(data_dir: Path, *more: str) -> int:
    return main(["restore", "--metadata-from-data", "--data-dir", str(data_dir), *more])


def node_path(data_dir: Path, node_id: int) -> str:
    return str(data_dir / f"node-{node_id}")


def everything_in(data_dir: Path) -> dict[str, bytes]:
    """The data files: a start may rewrite the others."""
    return {str(path): path.read_bytes() for path in data_dir.rglob("*.data")}


def test_the_replica_with_the_longest_history_leads_alone(tmp_path: Path, capsys: Any) -> None:
    trio.run(lambda: fill(tmp_path, 1, [(0, b"a"), (1, b"b"), (1, b"c")], (2, 1)))
    trio.run(lambda: fill(tmp_path, 2, [(0, b"a"), (0, b"x")], (2, 1)))
    assert restore(tmp_path, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["kept_logs"] == [
        {"topic": "t", "partition": 0, "node_id": 2, "end_offset": 2, "is_replica": True, "diverges_at": 1}
    ]
    state = trio.run(restored_state, tmp_path)
    assert (state.leader, state.replicas, state.isr) == (1, (2, 1), (1,))
    (kept,) = read_kept_logs(RealDisk(), node_path(tmp_path, 2))
    assert (str(kept), kept.end_offset, kept.is_stray) == ("t-0", 2, False)
    assert read_kept_logs(RealDisk(), node_path(tmp_path, 1)) == []


def test_a_node_that_was_removed_meanwhile_is_not_believed(tmp_path: Path, capsys: Any) -> None:
    trio.run(lambda: fill(tmp_path, 2, [(0, b"a"), (2, b"b")], (2,), partition_epoch=3))
    trio.run(lambda: fill(tmp_path, 3, [(0, b"a")], (3, 1)))
    assert restore(tmp_path) == 0
    out = capsys.readouterr().out
    assert "kept aside: the log of t-0 on node 3" in out
    assert f"start it with `ottla serve --data-dir {tmp_path} --nodes 2 --set node.id=2`" in out
    state = trio.run(restored_state, tmp_path)
    assert (state.leader, state.replicas, state.isr) == (2, (2,), (2,))
    assert read_kept_logs(RealDisk(), node_path(tmp_path, 3))[0].is_stray


def test_of_two_topics_of_one_name_the_older_one_is_named_and_stays(tmp_path: Path, capsys: Any) -> None:
    trio.run(lambda: fill(tmp_path, 1, [(0, b"new")], (1,), now_ms=1_700_000_900_000))
    trio.run(lambda: fill(tmp_path, 2, [(0, b"old")] * 5, (2, 1), topic_id=OLDER_ID))
    before = everything_in(tmp_path)
    assert restore(tmp_path) == 0
    assert f"an older topic t with the id {OLDER_ID} in node-2" in capsys.readouterr().out
    assert trio.run(restored_state, tmp_path).leader == 1
    assert everything_in(tmp_path) == before


def test_contradictions_are_refused_and_nothing_is_written(tmp_path: Path, capsys: Any) -> None:
    trio.run(lambda: fill(tmp_path, 1, [(0, b"a"), (2, b"b")], (1, 2)))
    trio.run(lambda: fill(tmp_path, 2, [(0, b"a"), (0, b"x"), (2, b"y")], (1, 2)))
    assert restore(tmp_path) == 1
    err = capsys.readouterr().err
    assert "the logs of t-0 on nodes 1, 2" in err
    assert "--prefer-node" in err
    assert not list(tmp_path.glob("cluster.sqlite*"))
    assert restore(tmp_path, "--prefer-node", "5") == 1
    assert "no such node" in capsys.readouterr().err
    assert restore(tmp_path, "--prefer-node", "1") == 0
    state = trio.run(restored_state, tmp_path)
    assert (state.leader, state.replicas) == (1, (1,))
    assert read_kept_logs(RealDisk(), node_path(tmp_path, 2))[0].is_stray


def description_in(node_path: str) -> keys.DescribedTopic:
    (path,) = Path(node_path).glob("t.*/0/topic.json")
    return keys.decode_described_topic(path.read_bytes())


async def test_a_move_is_described_beside_the_records(run_cluster: RunCluster) -> None:
    """By that, the older description of a node that is down meanwhile is not believed."""
    async with run_cluster(3) as cluster:
        await create(cluster, (1, 2))
        await acknowledged(cluster[1], b"a")
        await cluster.until(leader_is(1, (1, 2)))
        for target in ((1, 3), (3, 1)):
            change = partial(reassign, target=target, brokers=(1, 2, 3))
            await change_partition(cluster[1].broker.controller, "t", 0, change)
            await cluster.until(partition_has(target))
        for node_id in (1, 3):
            log_manager = cluster[node_id].broker.log_manager
            await log_manager.maintenance.wait_idle()
            described = description_in(log_manager.node_dir.path)
            assert described.replicas == [(3, 1)]
            assert described.epochs == [cluster[1].image.topics["t"].partitions[0].partition_epoch]


async def load_metadata(cluster: Cluster, data_dir: Path) -> None:
    """Give the nodes of a cluster the restored metadata."""
    store = await open_sqlite_store(data_dir / "cluster.sqlite", SystemClock().time_ms)
    entries = (await store.list("/")).entries
    await store.close()
    await cluster.store.commit([], [Put(entry.key, entry.value) for entry in entries])


@pytest.mark.timeout(60)
async def test_after_the_restore_every_record_is_readable_or_set_aside(run_cluster: RunCluster, tmp_path: Path) -> None:
    data_dir = tmp_path / "one"
    await fill(data_dir, 1, [(0, b"a"), (1, b"b"), (1, b"c")], (2, 1, 3))
    await fill(data_dir, 2, [(0, b"a"), (0, b"lost 1"), (0, b"lost 2"), (0, b"lost 3")], (2, 1, 3))
    await fill(data_dir, 3, [(0, b"a")], (2, 1, 3))
    assert await trio.to_thread.run_sync(restore, data_dir) == 0
    async with run_cluster(0) as cluster:
        await load_metadata(cluster, data_dir)
        for node_id in (2, 3, 1):
            await cluster.start(node_id, folder=data_dir)
        await cluster.until(leader_is(1, (1, 2, 3)))
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [b"a", b"b", b"c"]
        (path,) = cut_files(RealDisk(), node_path(data_dir, 2))
        found = [values_of(batch.content[batch.position :])[0] for batch in salvage(RealDisk(), path)]
        assert found == [b"lost 1", b"lost 2", b"lost 3"]
        assert cut_files(RealDisk(), node_path(data_dir, 3)) == []
        assert all(read_kept_logs(RealDisk(), node_path(data_dir, node_id)) == [] for node_id in (1, 2, 3))
        await acknowledged(cluster[1], b"d")
        assert partition_at(cluster[1]).log.log_end_offset == 4
