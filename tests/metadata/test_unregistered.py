"""A broker that is unregistered, and the partitions that it had."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ottla.metadata.changes.partition_changes import with_isr
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.controller import Controller
from ottla.metadata.errors import InvalidRequestError
from ottla.metadata.image import NO_LEADER, BrokerImage, Endpoint, PartitionState
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Compare, Operation
from tests.partitions import change_partition

ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9093),)
ALIVE = BrokerImage(2, ENDPOINTS, incarnation="second", directory_id="folder")
DEAD = BrokerImage(2, ENDPOINTS, incarnation="first", directory_id="folder", fenced=True)


@pytest.fixture
async def two(controller: Controller) -> Controller:
    """A controller on node 1, beside which node 2 has died."""
    await controller.register_broker(DEAD)
    return controller


async def partition(controller: Controller, **fields: Any) -> None:
    """A partition on both, in a state of its own."""
    configs = {"min.insync.replicas": "2"}
    await controller.create_topic(NewTopic("t", assignments={0: [1, 2]}, configs=configs))

    def change(state: PartitionState) -> PartitionState:
        epoch = state.leader_epoch + (fields.get("leader", state.leader) != state.leader)
        return state._replace(**fields, leader_epoch=epoch, partition_epoch=state.partition_epoch + 1)

    await change_partition(controller, "t", 0, change)


def state_of(controller: Controller) -> PartitionState:
    return controller.image.topics["t"].partitions[0]


async def test_it_leaves_the_in_sync_sets_with_others(two: Controller) -> None:
    """More of them than one transaction takes."""
    topic = await two.create_topic(NewTopic("t", assignments={number: [1, 2] for number in range(150)}))
    await two.change_partitions(
        {(topic.topic_id, number): lambda state: with_isr(state, (1, 2)) for number in range(150)}
    )
    await two.unregister_broker(2)
    states = two.image.topics["t"].partitions
    assert {(state.leader, state.isr, state.elr, state.replicas) for state in states} == {(1, (1,), (), (1, 2))}
    assert 2 not in two.image.brokers


async def test_what_it_led_is_led_by_who_is_in_sync(two: Controller) -> None:
    await partition(two, leader=2, isr=(1, 2))
    before = state_of(two).leader_epoch
    await two.unregister_broker(2)
    state = state_of(two)
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1,), before + 1)


async def test_it_is_not_eligible_any_more(two: Controller) -> None:
    await partition(two, leader=1, isr=(1,), elr=(2,))
    assert state_of(two).elr == (2,)
    await two.unregister_broker(2)
    assert (state_of(two).leader, state_of(two).isr, state_of(two).elr) == (1, (1,), ())


async def test_the_last_in_sync_stays_as_nobody_has_more(two: Controller) -> None:
    await partition(two, leader=NO_LEADER, isr=(2,), elr=())
    before = state_of(two)
    await two.unregister_broker(2)
    assert state_of(two) == before
    assert 2 not in two.image.brokers


@pytest.fixture
def after_leaving(store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Do something when the in-sync sets were left, before the broker is forgotten."""
    commit = store.commit

    def once(act: Callable[[], Awaitable[None]]) -> None:
        async def then(compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
            monkeypatch.undo()
            revision = await commit(compares, operations)
            await act()
            return revision

        monkeypatch.setattr(store, "commit", then)

    return once


async def test_one_that_comes_back_meanwhile_is_not_forgotten(
    two: Controller, store: MemoryMetadataStore, after_leaving: Callable[..., None]
) -> None:
    await partition(two, leader=1, isr=(1,), elr=(2,))

    async def come_back() -> None:
        await two.register_broker(ALIVE, await store.grant_lease(60_000))

    after_leaving(come_back)
    with pytest.raises(InvalidRequestError):
        await two.unregister_broker(2)
    assert 2 in two.image.brokers


async def test_one_that_comes_back_and_dies_meanwhile_leaves_again(
    two: Controller, store: MemoryMetadataStore, after_leaving: Callable[..., None]
) -> None:
    await partition(two, leader=1, isr=(1,), elr=(2,))

    async def come_and_go() -> None:
        lease = await store.grant_lease(60_000)
        await two.register_broker(ALIVE, lease)
        await change_partition(two, "t", 0, lambda state: with_isr(state, (1, 2)))
        await store.revoke_lease(lease)
        while not two.image.brokers[2].fenced:
            await two.next_image()

    after_leaving(come_and_go)
    await two.unregister_broker(2)
    assert (state_of(two).isr, state_of(two).elr) == ((1,), ())
    assert 2 not in two.image.brokers
