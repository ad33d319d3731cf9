"""A replica with a hole in its log is made whole from the others, and gives nothing up before they can."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.metadata.image import NO_LEADER
from ottla.replica.partition import Partition
from ottla.storage.errors import CorruptLogError
from ottla.storage.store.segment_files import LOSS_FILE
from tests.clusters import Cluster, Member, RunCluster, run_cluster
from tests.replica.conftest import FakeStore
from tests.replica.test_followers import (
    LAG,
    acknowledged,
    content,
    create,
    is_noted,
    leader_is,
    out_of_sync,
    partition_at,
    until_equal,
    values_of,
)

__all__ = ["run_cluster"]

COUNT = 20
PATIENT = LAG | {"broker.session.timeout.ms": "30000", "ottla.tail.cache.bytes": "0"}


async def fill(cluster: Cluster, leader: int, *replicas: int, size_bytes: int = 100) -> list[bytes]:
    """Batches of their own, all of them on all replicas."""
    await create(cluster, replicas)
    values = [b"%02d" % number * (size_bytes // 2) for number in range(COUNT)]
    for value in values:
        await acknowledged(cluster[leader], value)
    await until_equal(cluster, *replicas)
    return values


def folder_of(node: Member) -> Path:
    return Path(node.broker.log_manager.node_dir.path)


def damage(folder: Path, value: bytes, *, is_noted_too: bool = True) -> None:
    """A bit of the record with this value flips; the scrubber has found that, if it is noted."""
    (path,) = [path for path in folder.rglob("*.data") if value in path.read_bytes()]
    changed = bytearray(path.read_bytes())
    changed[changed.index(value)] ^= 1
    path.write_bytes(bytes(changed))
    if is_noted_too:
        (path.parent / LOSS_FILE).touch()


async def readable(node: Member) -> list[int]:
    """The offsets of the batches that can be read, one after the other."""
    log = partition_at(node).log
    found = []
    for offset in range(log.log_start_offset, log.flushed_end_offset):
        try:
            records, _ = await log.read_batches(offset, offset + 1)
        except CorruptLogError:
            continue
        if records.size_bytes:
            found.append(offset)
        records.release()
    return found


async def until_settled(folder: Path) -> None:
    with trio.fail_after(10):
        while is_noted(folder):  # noqa: ASYNC110 (nobody could set an event)
            await trio.sleep(0.01)


@pytest.mark.parametrize("damaged", [1, 2])
async def test_a_hole_is_filled_from_the_leader(run_cluster: RunCluster, damaged: int) -> None:
    """Whether the damaged replica led or followed."""
    async with run_cluster(3, PATIENT) as cluster:
        values = await fill(cluster, 1, 1, 2, 3)
        folder = folder_of(cluster[damaged])
        await cluster.stop(damaged)
        damage(folder, values[8])
        await cluster.start(damaged)
        leader = cluster[3].image.topics["t"].partitions[0].leader
        assert leader != damaged
        await acknowledged(cluster[leader], b"later")
        await cluster.until(leader_is(leader, (1, 2, 3)))
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [*values, b"later"]
        await until_settled(folder)


async def test_a_lost_file_is_filled_from_the_leader(run_cluster: RunCluster) -> None:
    """The start finds out that it is gone."""
    async with run_cluster(2, PATIENT | {"log.segment.bytes": "1048576"}) as cluster:
        values = await fill(cluster, 1, 1, 2, size_bytes=200_000)
        folder = folder_of(cluster[2])
        await cluster.stop(2)
        files = sorted(folder.rglob("*.data"))
        assert len(files) > 3
        files[1].unlink()
        await cluster.start(2)
        await cluster.until(leader_is(1, (1, 2)))
        assert values_of(await until_equal(cluster, 1, 2)) == values
        await until_settled(folder)


@pytest.mark.parametrize("damaged", [1, 2])
async def test_damage_that_is_found_while_the_node_runs_is_filled_at_once(
    run_cluster: RunCluster, damaged: int
) -> None:
    async with run_cluster(3, PATIENT) as cluster:
        values = await fill(cluster, 1, 1, 2, 3)
        node = cluster[damaged]
        log = partition_at(node).log
        damage(folder_of(node), values[8], is_noted_too=False)
        with pytest.raises(CorruptLogError):
            await content(node)
        # As the scrubber does.
        await log.store.doubt()
        with trio.fail_after(20):
            while len(await readable(node)) < COUNT:  # noqa: ASYNC110 (nobody could set an event)
                await trio.sleep(0.01)
        leader = cluster[3].image.topics["t"].partitions[0].leader
        assert leader != damaged
        await acknowledged(cluster[leader], b"later")
        await cluster.until(leader_is(leader, (1, 2, 3)))
        assert values_of(await until_equal(cluster, 1, 2, 3)) == [*values, b"later"]
        assert partition_at(node).log is log


async def test_nothing_is_cut_while_no_leader_has_more(run_cluster: RunCluster) -> None:
    """The leader dies after the damaged replica has left the in-sync set: all that can be read of it stays."""
    async with run_cluster(2, PATIENT) as cluster:
        values = await fill(cluster, 1, 1, 2)
        folder = folder_of(cluster[2])
        await cluster.stop(2)
        await cluster.until(out_of_sync(2), 1)
        damage(folder, values[8])
        await cluster.stop(1)
        whole = [offset for offset in range(COUNT) if offset != 8]
        for _ in range(2):
            await cluster.start(2)
            await cluster.until(leader_is(NO_LEADER, (1,)))
            assert await readable(cluster[2]) == whole
            assert is_noted(folder)
            await cluster.stop(2)
        await cluster.start(2)
        await cluster.start(1)
        await cluster.until(leader_is(1, (1, 2)))
        assert values_of(await until_equal(cluster, 1, 2)) == values
        await until_settled(folder)


async def test_nothing_is_cut_where_the_leader_is_damaged_at_the_same_place(run_cluster: RunCluster) -> None:
    async with run_cluster(2, PATIENT) as cluster:
        values = await fill(cluster, 1, 1, 2)
        folders = [folder_of(cluster[node]) for node in (1, 2)]
        await cluster.stop(2)
        await cluster.until(out_of_sync(2), 1)
        await cluster.stop(1)
        for folder in folders:
            damage(folder, values[8])
        await cluster.start(1)
        await cluster.start(2)
        await cluster.until(leader_is(1, (1,)))
        leader = partition_at(cluster[1])
        assert leader.is_leader
        with trio.fail_after(10):
            # The follower has heard of all refusals but the last.
            while cluster[1].broker.replica_manager.counters.fetch_errors < 3:  # noqa: ASYNC110 (nobody tells)
                await trio.sleep(0.01)
        assert partition_at(cluster[2]).first_bad_offset == 8
        whole = [offset for offset in range(COUNT) if offset != 8]
        assert [await readable(cluster[node]) for node in (1, 2)] == [whole, whole]


@pytest.mark.parametrize("dies", ["before the cut", "after the cut"])
async def test_a_node_that_dies_while_it_is_filled_goes_on_with_it(
    run_cluster: RunCluster, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    async with run_cluster(2, PATIENT) as cluster:
        values = await fill(cluster, 1, 1, 2)
        folder = folder_of(cluster[2])
        await cluster.stop(2)
        damage(folder, values[8])
        reached = trio.Event()
        cut = Partition.truncate_as_follower

        async def cut_and_die(self: Partition, *arguments: Any) -> None:
            if dies == "after the cut":
                await cut(self, *arguments)
            reached.set()
            await trio.sleep_forever()

        with monkeypatch.context() as patched:
            patched.setattr(Partition, "truncate_as_follower", cut_and_die)
            await cluster.start(2)
            with trio.fail_after(10):
                await reached.wait()
            assert is_noted(folder)
            await cluster.kill(2)
        await acknowledged(cluster[1], b"later")
        await cluster.start(2)
        await cluster.until(leader_is(1, (1, 2)))
        assert values_of(await until_equal(cluster, 1, 2)) == [*values, b"later"]
        await until_settled(folder)


class SettlingStore(FakeStore):
    """Takes its time to forget a loss, and counts how often it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.settled = 0
        self.may_go_on = trio.Event()
        self.files = SimpleNamespace(directory="store")

    async def settle_loss(self) -> None:
        self.settled += 1
        await self.may_go_on.wait()


async def test_two_who_settle_losses_at_the_same_time_settle_each_once(node: Any) -> None:
    """What follows the metadata, and a fetcher that has cut a log."""
    stores = [SettlingStore(), SettlingStore()]
    open_log = node.log_manager.open_log

    async def open_damaged(topic_id: Any, topic: str, partition: int, config: Any) -> Any:
        log = await open_log(topic_id, topic, partition, config)
        log.store, log.may_lack_records = stores[partition], True
        return log

    node.log_manager.open_log = open_damaged
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(node.create_topic, partitions=2))
        await wait_all_tasks_blocked()
        nursery.start_soon(node.manager.settle_losses)
        await wait_all_tasks_blocked()
        assert [store.settled for store in stores] == [1, 1]
        for store in stores:
            store.may_go_on.set()
    assert [store.settled for store in stores] == [1, 1]


async def test_the_only_replica_is_left_as_it_is(run_cluster: RunCluster) -> None:
    async with run_cluster(1, PATIENT) as cluster:
        values = await fill(cluster, 1, 1)
        folder = folder_of(cluster[1])
        await cluster.stop(1)
        damage(folder, values[8])
        node = await cluster.start(1)
        assert partition_at(node).is_leader
        assert await readable(node) == [offset for offset in range(COUNT) if offset != 8]
        with pytest.raises(CorruptLogError):
            await content(node)
        await acknowledged(node, b"later")
        await until_settled(folder)
