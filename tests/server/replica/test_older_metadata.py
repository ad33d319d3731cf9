"""Metadata that is older than the logs: partitions are led on in epochs that no log has (docs/decisions/0031)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
import trio

from ottla.server.metadata.errors import StoreUnavailableError
from ottla.server.metadata.image import PartitionState, TopicImage
from ottla.server.replica.errors import NotLeaderError
from ottla.server.replica.partition import Role
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import AppendOrigin
from tests.server.replica.conftest import FakeLog, Node, batch


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
