"""What is found in accounts of what a share group was given, of which each has one thing wrong."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.simulation.cluster.histories.deliveries import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Deliveries,
    Delivery,
    ShareSession,
)

PLACE = ("events", 0)


class Leader:
    def __init__(self, leader_epoch: int = 1) -> None:
        self.leader_epoch = leader_epoch


class Account:
    """A group of which every record is delivered five times at most, and held for a second."""

    def __init__(self) -> None:
        self.found: list[str] = []
        world: Any = self
        self.deliveries = Deliveries(world, "shared", limit=5, lock_s=1.0, is_committed=False)
        self.session = ShareSession(1)

    def check(self, condition: bool, finding: str) -> None:
        if not condition:
            self.found.append(finding)

    def give(self, member: str, count: int, giver: Leader | None, *, asked_s: float | None = None) -> Delivery:
        asked_s = trio.current_time() if asked_s is None else asked_s
        given = Delivery(member, PLACE, 7, count, asked_s=asked_s, lock_s=1.0, giver=giver, session=self.session)
        self.deliveries.deliver(given)
        self.session.alive_s = trio.current_time() + 10
        return given

    def say(self, given: Delivery, kind: int, leader: Leader | None) -> None:
        self.deliveries.say(given, kind)
        self.deliveries.settle(given, kind, is_done=True, said_s=trio.current_time(), leader=leader)

    def verdict(self) -> str:
        self.deliveries.check_holders()
        return "; ".join(self.found)

    @property
    def missing(self) -> list[str]:
        return self.deliveries.missing({PLACE: [7]})


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture
def leader() -> Leader:
    return Leader()


async def test_what_is_right(account: Account, leader: Leader, autojump_clock: MockClock) -> None:
    account.say(account.give("a", 1, leader), RELEASE, leader)
    account.give("a", 2, leader)
    await trio.sleep(1)
    assert account.missing == ["events-0 offset 7"]
    account.say(account.give("b", 3, leader), ACCEPT, leader)
    assert account.verdict() == ""
    assert account.missing == []


async def test_two_holders(account: Account, leader: Leader, autojump_clock: MockClock) -> None:
    account.give("a", 1, leader)
    await trio.sleep(0.9)
    account.give("b", 2, leader)
    assert "(delivery 1 to a) is given as events-0 offset 7 (delivery 2 to b)" in account.verdict()


async def test_a_lock_that_was_prolonged(account: Account, leader: Leader, autojump_clock: MockClock) -> None:
    given = account.give("a", 1, leader)
    await trio.sleep(0.9)
    account.say(given, RENEW, leader)
    await trio.sleep(0.9)
    account.give("b", 2, leader)
    assert "is held until" in account.verdict()


async def test_what_is_over_is_not_prolonged(account: Account, leader: Leader, autojump_clock: MockClock) -> None:
    """Even though nobody refuses that, where the group begins behind it."""
    first = account.give("a", 1, leader)
    await trio.sleep(0.9)
    said_s = trio.current_time()
    await trio.sleep(0.2)
    account.say(account.give("b", 2, leader), ACCEPT, leader)
    account.deliveries.settle(first, RENEW, is_done=True, said_s=said_s, leader=leader)
    assert account.verdict() == ""


async def test_a_session_that_may_have_ended(account: Account, leader: Leader, autojump_clock: MockClock) -> None:
    account.give("a", 1, leader)
    account.session.alive_s = trio.current_time()
    account.session = ShareSession(1)
    account.give("b", 2, leader)
    assert account.verdict() == ""


async def test_one_delivery_to_two_members(account: Account, leader: Leader, autojump_clock: MockClock) -> None:
    account.give("a", 1, leader)
    await trio.sleep(5)
    account.give("b", 1, leader)
    assert "as well" in account.verdict()


async def test_another_leader_begins_anew(account: Account) -> None:
    account.give("a", 1, Leader(1))
    account.give("b", 1, Leader(2))
    account.give("c", 1, None)
    assert account.verdict() == ""


async def test_too_many_deliveries(account: Account, leader: Leader) -> None:
    account.give("a", 6, leader)
    assert "more than 5 times" in account.verdict()


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
async def test_what_is_over_is_delivered(account: Account, kind: int, autojump_clock: MockClock) -> None:
    account.say(account.give("a", 1, Leader(2)), kind, Leader(2))
    await trio.sleep(1)
    account.give("b", 1, Leader(1))
    assert account.found == []  # it does not know yet that it does not lead
    account.give("b", 1, Leader(3))
    assert "which was over since" in account.verdict()


async def test_what_was_asked_for_before_it_was_over(account: Account, autojump_clock: MockClock) -> None:
    began_s = trio.current_time()
    account.say(account.give("a", 1, Leader(1)), ACCEPT, Leader(1))
    await trio.sleep(0.1)
    account.give("b", 1, Leader(2), asked_s=began_s - 1)
    assert account.verdict() == ""


async def test_what_is_missing(account: Account, leader: Leader) -> None:
    assert account.missing == ["events-0 offset 7"]
    given = account.give("a", 1, leader)
    account.deliveries.say(given, ACCEPT)
    assert account.missing == []
    account.deliveries.settle(given, ACCEPT, is_done=False, said_s=0.0, leader=None)
    assert account.missing == ["events-0 offset 7"]
    for _ in range(4):
        account.deliveries.lose([PLACE])
    assert account.missing == []
    assert account.deliveries.missing({PLACE: [7]}, is_certain=False) == ["events-0 offset 7"]
