"""Metadata that is older than the logs: partitions are led on in epochs that no log has (docs/decisions/0031)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio

from ottla.metadata import keys
from ottla.metadata.changes.partition_changes import reassign
from ottla.metadata.image import PartitionState, TopicImage
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.store import Delete, Put
from ottla.replica.errors import NotLeaderError
from ottla.replica.high_watermarks import FILE
from ottla.replica.partition import Role
from ottla.storage.config import LogConfig
from ottla.storage.disk import RealDisk
from ottla.storage.inspect.salvage import salvage
from ottla.storage.kept_logs import cut_files, read_kept_logs
from ottla.storage.log.partition_log import AppendOrigin
from tests.clusters import Cluster, Member, RunCluster, run_cluster
from tests.partitions import change_partition
from tests.replica.conftest import FakeLog, Node, batch
from tests.replica.test_followers import LAG, acknowledged, create, leader_is, values, values_of

__all__ = ["run_cluster"]


async def opened(node: Node, *, latest_epoch: int, leader_epoch: int, leader: int) -> TopicImage:
    """A topic whose log is there already, with records of that epoch."""
    topic_id = uuid4()
    log = FakeLog(topic_id, "t", 0, LogConfig())
    log.append_as_leader(batch().view, None, leader_epoch=latest_epoch, origin=AppendOrigin.CLIENT, now_ms=0)
    node.log_manager.logs[topic_id, 0] = log
    state = PartitionState(leader=leader, replicas=(0, 1), isr=(0, 1), leader_epoch=leader_epoch)
    topic = TopicImage("t", topic_id, (state,))
    await node._publish(topic, created=True, changes=[0])
    return topic


class Store:
    """Takes what is asked of it, and fails so many times before."""

    def __init__(self, node: Node, topic: TopicImage, *, failures: int = 0) -> None:
        self._node = node
        self._topic = topic
        self._failures = failures
        self.epochs: list[int] = []

    async def change_partitions(self, asked: Mapping[Any, Any]) -> Mapping[Any, Any]:
        if self._failures:
            self._failures -= 1
            raise StoreUnavailableError("no answer")
        (update,) = asked.values()
        current = self._node.image.topic_by_id(self._topic.topic_id)
        assert current is not None
        after = update(current.partitions[0])
        self.epochs.append(after.leader_epoch)
        if after is not current.partitions[0]:
            await self._node.change(self._topic, leader_epoch=after.leader_epoch)
        return {}


async def settle(node: Node, store: Store) -> None:
    """Let this node ask for what it wants."""
    with trio.move_on_after(5):
        await node.manager.in_sync_sets.run(store.change_partitions)


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_follower_whose_log_is_ahead_asks_for_a_later_epoch(
    node: Node, autojump_clock: object, failures: int
) -> None:
    topic = await opened(node, latest_epoch=7, leader_epoch=3, leader=1)
    store = Store(node, topic, failures=failures)
    await settle(node, store)
    assert store.epochs == [8]
    assert (node.partition(topic).role, node.partition(topic).leader_epoch) == (Role.FOLLOWER, 8)


@pytest.mark.parametrize("latest_epoch", [3, 7])
async def test_a_leader_leads_only_in_an_epoch_that_its_log_has_not(
    node: Node, autojump_clock: object, latest_epoch: int
) -> None:
    """Two leaders' records of one epoch could not be told from each other."""
    topic = await opened(node, latest_epoch=latest_epoch, leader_epoch=3, leader=0)
    assert isinstance((await node.append(topic, acks=0)).error, NotLeaderError)
    store = Store(node, topic)
    await settle(node, store)
    assert store.epochs == [latest_epoch + 1]
    assert (await node.append(topic, acks=0)).error is None
    assert node.log(topic).latest_epoch == latest_epoch + 1


async def test_somebody_else_has_raised_it_meanwhile(node: Node, autojump_clock: object) -> None:
    topic = await opened(node, latest_epoch=7, leader_epoch=3, leader=0)
    topic = await node.change(topic, leader=1, leader_epoch=20)
    store = Store(node, topic)
    await settle(node, store)
    assert store.epochs == [20]
    assert node.partition(topic).leader_epoch == 20


@pytest.mark.parametrize(("leader", "latest_epoch"), [(0, 2), (1, 3), (1, 2)])
async def test_where_the_metadata_is_not_older_nothing_is_asked(
    node: Node, autojump_clock: object, leader: int, latest_epoch: int
) -> None:
    topic = await opened(node, latest_epoch=latest_epoch, leader_epoch=3, leader=leader)
    store = Store(node, topic)
    await settle(node, store)
    assert store.epochs == []
    assert node.partition(topic).is_leader == (leader == 0)


async def test_who_leads_on_is_asked_nothing(node: Node, autojump_clock: object) -> None:
    topic = await opened(node, latest_epoch=2, leader_epoch=3, leader=0)
    await node.append(topic, acks=0)
    topic = await node.change(topic, isr=(0,))
    store = Store(node, topic)
    await settle(node, store)
    assert store.epochs == []
    assert node.partition(topic).is_leader


async def old_metadata_is_put_back(cluster: Cluster) -> Member:
    """A partition of node 2 moves from node 1, which deletes its log, to node 3. Then all nodes end, and node 2 knows
    of nothing that it is committed, as after kills. Metadata from before comes back: node 1 leads with an empty log.
    """
    await create(cluster, (2, 1))
    await acknowledged(cluster[2], b"a")
    await acknowledged(cluster[2], b"b")
    copy = await entries_of(cluster)
    await change_partition(cluster[1].broker.controller, "t", 0, partial(reassign, target=(2, 3), brokers=(1, 2, 3)))
    await cluster.until(leader_is(2, (2, 3)))
    await cluster.stop(2)
    await cluster.start(2)
    await cluster.until(leader_is(3, (2, 3)))
    path = Path(cluster[2].broker.log_manager.node_dir.path)
    for node_id in (3, 2, 1):
        await cluster.stop(node_id)
    (path / FILE).write_text(json.dumps(dict.fromkeys(json.loads((path / FILE).read_text()), 0)))
    await cluster.store.commit([], [Delete(key) for key in await entries_of(cluster)])
    await cluster.store.commit([], [Put(key, value) for key, value in copy.items()])
    await cluster.start(1)
    await cluster.until(leader_is(1))
    node = await cluster.start(2)
    await cluster.until(leader_is(1, (1, 2)))
    return node


async def entries_of(cluster: Cluster) -> dict[str, bytes]:
    leased = (keys.ALIVE, keys.CONTROLLER)
    entries = (await cluster.store.list("/")).entries
    return {entry.key: entry.value for entry in entries if not entry.key.startswith(leased)}


async def test_what_a_replica_has_that_old_metadata_does_not_count_on_is_set_aside(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LAG) as cluster:
        node = await old_metadata_is_put_back(cluster)
        assert await values(node) == []
        path = node.broker.log_manager.node_dir.path
        (cut,) = cut_files(RealDisk(), path)
        found = [values_of(batch.content[batch.position :])[0] for batch in salvage(RealDisk(), cut)]
        assert found == [b"a", b"b"]
        # The next change of anything finds that the leader has committed all there is.
        await create(cluster, (2,), name="another")
        with trio.fail_after(10):
            while read_kept_logs(RealDisk(), path):  # noqa: ASYNC110 - it is a file
                await trio.sleep(0.01)
