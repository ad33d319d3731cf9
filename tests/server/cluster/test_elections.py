"""The controller sees to it that the living lead."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

import pytest
import trio
from trio.testing import MockClock

from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.changes.partition_changes import with_isr
from ottla.metadata.changes.topic_changes import USE_DEFAULT, NewTopic
from ottla.metadata.controller import Controller
from ottla.metadata.image import NO_LEADER, BrokerImage, ConfigResource, PartitionState, ResourceType
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Compare, Operation, Put
from ottla.server.cluster.controllership import Controllership
from ottla.server.cluster.elections import Elections
from ottla.server.cluster.membership import Membership
from ottla.settings.config import BrokerConfig
from tests.partitions import change_partition


class Office:
    """A node without its broker: a member, perhaps the controller, that sees to elections."""

    def __init__(self, store: MemoryMetadataStore, node_id: int, nursery: trio.Nursery) -> None:
        config = BrokerConfig({"leader.imbalance.check.interval.seconds": "600"})
        self.controller = Controller(store, config, node_id=node_id)
        self._membership = Membership(
            store,
            self.controller,
            directory_id=str(node_id),
            session_timeout_ms=9_000,
            heartbeat_interval_ms=2_000,
        )
        self._elections = Elections(config)
        self._controllership = Controllership(
            self.controller, self._membership, [self._elections.run, self._elections.rebalance]
        )
        self._node_id = node_id
        self._nursery = nursery
        self._scope = trio.CancelScope()

    async def start(self) -> None:
        await self._nursery.start(self._run)

    def die(self) -> None:
        self._scope.cancel()

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                self.controller.subscribe(self._membership.follow)
                self.controller.subscribe(self._elections.observe)
                await nursery.start(self.controller.run)
                broker = BrokerImage(self._node_id, (), directory_id=str(self._node_id))
                await nursery.start(self._membership.run, broker)
                nursery.start_soon(self._controllership.run)
                task_status.started()

    async def until(self, topic: str, leader: int, isr: tuple[int, ...], partition: int = 0) -> PartitionState:
        while True:
            state = self.controller.image.partition(topic, partition)
            if state is not None and (state.leader, state.isr) == (leader, isr):
                return state
            await self.controller.next_image()


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


@pytest.fixture
async def offices(store: MemoryMetadataStore, nursery: trio.Nursery) -> AsyncIterator[dict[int, Office]]:
    """Nodes 1 to 3, of which 1 is the controller."""
    found = {node_id: Office(store, node_id, nursery) for node_id in (1, 2, 3)}
    for office in found.values():
        await office.start()
    yield found
    nursery.cancel_scope.cancel()


async def create(office: Office, name: str, *assignments: tuple[int, ...]) -> None:
    topic = NewTopic(name, USE_DEFAULT, USE_DEFAULT, assignments=dict(enumerate(assignments)))
    await office.controller.create_topic(topic)


async def test_what_a_dead_broker_led_is_led_by_the_next_in_sync(
    autojump_clock: MockClock, offices: dict[int, Office]
) -> None:
    await create(offices[1], "t", (2, 3, 1), (3, 2, 1))
    await create(offices[1], "alone", (2,))
    before = offices[1].controller.image.topics["t"].partitions
    offices[2].die()
    moved = await offices[1].until("t", 3, (3, 1))
    assert (moved.leader_epoch, moved.replicas) == (before[0].leader_epoch + 1, (2, 3, 1))
    stayed = await offices[1].until("t", 3, (3, 1), partition=1)
    assert (stayed.leader_epoch, stayed.partition_epoch) == (before[1].leader_epoch, before[1].partition_epoch + 1)
    await offices[1].until("alone", NO_LEADER, (2,))


async def test_the_death_of_the_controller_is_seen_to_by_the_next(
    autojump_clock: MockClock, offices: dict[int, Office]
) -> None:
    await create(offices[1], "t", (1, 2, 3))
    offices[1].die()
    await offices[2].until("t", 2, (2, 3))
    assert offices[2].controller.image.controller_id in (2, 3)


async def test_elections_wait_for_the_store(
    autojump_clock: MockClock, offices: dict[int, Office], store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(offices[1], "t", (2, 3))
    commit, failing = store.commit, 3

    async def fail(compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        nonlocal failing
        if failing and any(isinstance(it, Put) and it.key.startswith("/partitions/") for it in operations):
            failing -= 1
            raise StoreUnavailableError("The metadata store cannot be reached.")
        return await commit(compares, operations)

    monkeypatch.setattr(store, "commit", fail)
    offices[2].die()
    await offices[1].until("t", 3, (3,))
    assert failing == 0


async def test_the_only_replica_leads_again_when_it_is_back(
    autojump_clock: MockClock, offices: dict[int, Office], store: MemoryMetadataStore, nursery: trio.Nursery
) -> None:
    await create(offices[1], "t", (2,))
    offices[2].die()
    await offices[1].until("t", NO_LEADER, (2,))
    await Office(store, 2, nursery).start()
    await offices[1].until("t", 2, (2,))


async def test_a_topic_that_is_made_on_a_dead_broker_is_led_by_the_living(
    autojump_clock: MockClock, offices: dict[int, Office], caplog: pytest.LogCaptureFixture
) -> None:
    offices[3].die()
    await create(offices[1], "before", (3, 2))
    await offices[1].until("before", 2, (2,))
    await create(offices[1], "after", (3, 2))
    await offices[1].until("after", 2, (2,))


async def test_an_unclean_election_is_allowed_by_the_topic_and_told_at_error(
    autojump_clock: MockClock, offices: dict[int, Office], caplog: pytest.LogCaptureFixture
) -> None:
    await create(offices[1], "t", (2, 3))
    await change_partition(offices[1].controller, "t", 0, lambda state: with_isr(state, (2,)))
    offices[2].die()
    await offices[1].until("t", NO_LEADER, (2,))
    with caplog.at_level(logging.ERROR):
        resource = ConfigResource(ResourceType.TOPIC, "t")
        change = ConfigChange("unclean.leader.election.enable", ConfigOperation.SET, "true")
        await offices[1].controller.alter_configs({resource: [change]})
        await offices[1].until("t", 3, (3,))
    assert ["t-0 has no replica left that is in sync" in record.message for record in caplog.records] == [True]


async def test_preferred_replicas_get_their_leadership_back(
    autojump_clock: MockClock, offices: dict[int, Office], store: MemoryMetadataStore, nursery: trio.Nursery
) -> None:
    await create(offices[1], "t", (2, 3), (2, 3))
    offices[2].die()
    await offices[1].until("t", 3, (3,))
    await Office(store, 2, nursery).start()
    # One of the two is in sync again.
    await change_partition(offices[1].controller, "t", 1, lambda state: with_isr(state, (2, 3)))
    began = trio.current_time()
    await offices[1].until("t", 2, (2, 3), partition=1)
    assert trio.current_time() - began <= 600
    await offices[1].until("t", 3, (3,))


async def test_thousands_of_partitions_of_a_dead_broker_take_few_transactions(
    autojump_clock: MockClock, offices: dict[int, Office], store: MemoryMetadataStore
) -> None:
    await create(offices[1], "t", *[(2, 3)] * 2000)
    revision = (await store.list("/topics/")).revision
    offices[2].die()
    await offices[1].until("t", 3, (3,), partition=1999)
    assert all(state.leader == 3 for state in offices[1].controller.image.topics["t"].partitions)
    assert (await store.list("/topics/")).revision - revision <= 30
