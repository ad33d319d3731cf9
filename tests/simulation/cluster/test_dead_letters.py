"""What is found in the accounts of a share group and its dead-letter queue, of which each has one thing wrong."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.kproto.records import Record
from ottla.simulation.cluster.clients.dead_letters import DeadLetters, Queue
from ottla.simulation.cluster.histories.deliveries import ACCEPT, REJECT, Deliveries, Delivery, ShareSession

PLACE = ("events", 3)
OFFSET = 7
LOGS = {PLACE: {OFFSET: b"a"}}
REJECTED = "Offset rejected by client."
EXHAUSTED = "Offset delivery count exceeded the threshold."


class Leader:
    leader_epoch = 1


class Account:
    """A group of which every record is delivered twice at most, and held for a second. Its queue has two partitions."""

    def __init__(self) -> None:
        self.found: list[str] = []
        world: Any = self
        self.deliveries = Deliveries(world, "shared", limit=2, lock_s=1.0, is_committed=False)
        self.letters = DeadLetters(world, self.deliveries, Queue("dlq.shared", 2, copies=True))

    def check(self, condition: bool, finding: str) -> None:
        if not condition:
            self.found.append(finding)

    def note(self, text: str) -> None:
        del text

    def give(self, count: int = 1, giver: Leader | None = None) -> Delivery:
        asked_s = trio.current_time()
        session = ShareSession(1)
        given = Delivery("a", PLACE, OFFSET, count, asked_s=asked_s, lock_s=1.0, giver=giver, session=session)
        self.deliveries.deliver(given)
        return given

    def say(self, given: Delivery, kind: int, leader: Leader | None, *, is_done: bool = True) -> None:
        self.deliveries.say(given, kind)
        self.deliveries.settle(given, kind, is_done=is_done, said_s=trio.current_time(), leader=leader)

    def write(self, message: str, *, count: int = 1, index: int = 1, value: bytes | None = b"a", **said: str) -> None:
        fields = {"topic": "events", "partition": "3", "offset": "7", "group": "shared"} | said
        fields |= {"delivery.count": str(count), "message": message}
        headers = tuple((f"__dlq.errors.{name}", text.encode()) for name, text in fields.items())
        self.letters.read(("dlq.shared", index), Record(0, 0, None, value, headers), 2)

    def verdict(self) -> str:
        self.letters.check(LOGS, {PLACE: {OFFSET: b"a", OFFSET + 1: b"aborted"}})
        return "; ".join(self.found)


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture
def leader() -> Leader:
    return Leader()


async def test_a_record_that_is_rejected_has_a_letter(account: Account, leader: Leader) -> None:
    account.say(account.give(giver=leader), REJECT, leader)
    assert account.letters.unwritten(LOGS) == ["events-3 offset 7"]
    account.write(REJECTED)
    account.write(REJECTED)  # a leader was lost before it had stored that
    assert account.verdict() == ""


async def test_a_record_that_is_delivered_too_often_has_a_letter(account: Account, leader: Leader) -> None:
    account.give(giver=leader)
    account.give(2, giver=leader)
    assert "no letters about events-3 offset 7" in account.verdict()
    account.found.clear()
    account.write(EXHAUSTED, count=2)
    assert account.verdict() == ""


async def test_a_record_that_is_accepted_has_none(account: Account, leader: Leader) -> None:
    account.give(giver=leader)
    account.say(account.give(2, giver=leader), ACCEPT, leader)
    assert account.verdict() == ""
    account.write(EXHAUSTED, count=2)
    assert "was not delivered 2 times without being accepted" in account.verdict()


async def test_nobody_has_rejected_it(account: Account, leader: Leader) -> None:
    account.say(account.give(giver=leader), ACCEPT, leader)
    account.write(REJECTED)
    assert "was not rejected" in account.verdict()


async def test_a_reject_that_was_refused_is_none(account: Account, leader: Leader) -> None:
    account.say(account.give(giver=leader), REJECT, leader, is_done=False)
    account.write(REJECTED)
    assert "was not rejected" in account.verdict()


async def test_a_former_leader_may_write_of_what_it_has_delivered_itself(account: Account, leader: Leader) -> None:
    account.give(2, giver=Leader())
    account.say(account.give(2, giver=leader), ACCEPT, leader)
    account.write(EXHAUSTED, count=2)
    assert account.verdict() == ""


async def test_who_is_late_has_not_accepted_it(account: Account, leader: Leader, autojump_clock: MockClock) -> None:
    """Below the group's start nobody is refused."""
    given = account.give(2, giver=leader)
    await trio.sleep(1)
    account.say(given, ACCEPT, leader)
    account.write(EXHAUSTED, count=2)
    assert account.verdict() == ""


async def test_what_cannot_be_written_is_told(account: Account, leader: Leader) -> None:
    account.say(account.give(giver=leader), REJECT, leader)
    account.letters.give_up(PLACE, 1)
    assert account.verdict() == ""


@pytest.mark.parametrize(
    ("said", "finding"),
    [
        ({"index": 0}, "is in partition 0 of 2"),
        ({"group": "other"}, "is in the queue of shared, and of other"),
        ({"value": b"b"}, "has b'b' in it, and the record is b'a'"),
        ({"topic": "others"}, "is about none of the group's partitions"),
        ({"offset": "8"}, "is about a record whose transaction was aborted"),
    ],
)
async def test_a_letter_is_wrong(account: Account, leader: Leader, said: Any, finding: str) -> None:
    account.say(account.give(giver=leader), REJECT, leader)
    account.write(REJECTED)
    account.write(REJECTED, **said)
    assert finding in account.verdict()
