"""Duties run at one node at a time: the controller's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from ottla.metadata.controller import Controller
from ottla.metadata.image import BrokerImage
from ottla.metastore.errors import ConflictError
from ottla.metastore.memory import MemoryMetadataStore
from ottla.server.cluster.controllership import RETRY_SECONDS, Controllership
from ottla.server.cluster.membership import Membership
from ottla.settings.config import BrokerConfig

pytestmark = pytest.mark.frozen_clock


class Office:
    """A node without its broker: member, perhaps controller, with a duty that says when it runs."""

    def __init__(self, store: MemoryMetadataStore, node_id: int) -> None:
        self.store = store
        self.controller = Controller(store, BrokerConfig(), node_id=node_id)
        self.membership = Membership(
            store,
            self.controller,
            directory_id=str(node_id),
            session_timeout_ms=9_000,
            heartbeat_interval_ms=2_000,
        )
        self.controllership = Controllership(self.controller, self.membership, [self._rule])
        self.is_ruling = False
        self.begun = 0
        self.failing = 0

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            self.controller.subscribe(self.membership.follow)
            await nursery.start(self.controller.run)
            node_id = self.controller.node_id
            await nursery.start(self.membership.run, BrokerImage(node_id, (), directory_id=str(node_id)))
            nursery.start_soon(self.controllership.run)
            task_status.started()

    async def _rule(self, controller: Controller) -> None:
        assert controller is self.controller
        self.begun += 1
        self.is_ruling = True
        try:
            if self.failing:
                self.failing -= 1
                raise ConflictError("Somebody else is faster.")
            await trio.sleep_forever()
        finally:
            self.is_ruling = False


@pytest.fixture
async def offices(nursery: trio.Nursery) -> AsyncIterator[list[Office]]:
    store = MemoryMetadataStore()
    offices = [Office(store, 1), Office(store, 2)]
    for office in offices:
        await nursery.start(office.run)
    await trio.testing.wait_all_tasks_blocked()
    yield offices
    nursery.cancel_scope.cancel()


async def test_duties_follow_the_controller(offices: list[Office]) -> None:
    assert [office.is_ruling for office in offices] == [True, False]
    await offices[0].membership.leave()
    await trio.testing.wait_all_tasks_blocked()
    assert [office.is_ruling for office in offices] == [False, True]
    assert [office.begun for office in offices] == [1, 1]


async def test_a_session_that_is_renewed_lasts(offices: list[Office], mock_clock: trio.testing.MockClock) -> None:
    for _ in range(10):
        mock_clock.jump(2)
        await trio.testing.wait_all_tasks_blocked()
    assert [office.is_ruling for office in offices] == [True, False]
    assert {broker.epoch for broker in offices[1].controller.image.brokers.values()} == {
        broker.epoch for broker in offices[0].controller.image.brokers.values()
    }
    assert not any(broker.fenced for broker in offices[1].controller.image.brokers.values())


async def test_a_duty_that_fails_is_begun_again(offices: list[Office], mock_clock: trio.testing.MockClock) -> None:
    offices[1].failing = 2
    await offices[0].membership.leave()
    await trio.testing.wait_all_tasks_blocked()
    assert (offices[1].begun, offices[1].is_ruling) == (1, False)
    for _ in range(2):
        mock_clock.jump(RETRY_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
    assert (offices[1].begun, offices[1].is_ruling) == (3, True)


async def test_who_lost_the_office_and_its_session_serves_again(
    offices: list[Office], mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.jump(9.5)  # nobody has renewed anything in time, as after a suspended machine wakes
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(RETRY_SECONDS)
    await trio.testing.wait_all_tasks_blocked()
    assert sum(office.is_ruling for office in offices) == 1
    for office in offices:
        image = office.controller.image
        assert offices[image.controller_id - 1].is_ruling
        assert [broker.fenced for broker in image.brokers.values()] == [False, False]


async def test_a_session_that_cannot_begin_yet_is_asked_for_in_turn_with_others(
    offices: list[Office], mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while this node has not heard yet how the former one has ended."""
    asked = 0

    async def refuse(*_: object, **__: object) -> None:
        nonlocal asked
        asked += 1
        assert asked < 100
        raise ConflictError("The metadata keeps being changed elsewhere.")

    office = offices[0]
    with monkeypatch.context() as patched:
        patched.setattr(office.controller, "register_broker", refuse)
        await office.store.revoke_lease(office.membership.lease)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1)
        await trio.testing.wait_all_tasks_blocked()
        assert asked == 2
    mock_clock.jump(1)
    await trio.testing.wait_all_tasks_blocked()
    assert not office.controller.image.brokers[1].fenced
