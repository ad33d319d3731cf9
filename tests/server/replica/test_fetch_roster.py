"""Which partitions a fetcher asks for next."""

from __future__ import annotations

from uuid import UUID

import trio
import trio.testing

from ottla.server.replica.fetch_roster import FetchRoster

TOPIC = UUID(int=1)


class One:
    """A partition, as far as a roster looks at it."""

    def __init__(self, index: int) -> None:
        self.key = (TOPIC, index)
        self.rests_until = 0.0


async def test_what_is_put_in_is_due_once_and_again_when_something_of_it_is_new() -> None:
    roster, one, other = FetchRoster[One](), One(0), One(1)
    roster.put(one)
    roster.put(other)
    assert roster.take_due() == [one, other]
    assert roster.take_due() == []
    roster.is_due(other)
    assert roster.take_due() == [other]


async def test_what_rests_is_forgotten_and_due_when_its_rest_is_over(autojump_clock: trio.testing.MockClock) -> None:
    roster, one, other = FetchRoster[One](), One(0), One(1)
    roster.put(one)
    roster.put(other)
    await roster.wait()  # there is news already
    began = trio.current_time()
    roster.rest(one, began + 5)
    assert roster.take_due() == [other]
    assert roster.take_gone({other.key}) == {one.key}
    assert not roster.all_rest
    roster.rest(other, began + 3)
    assert roster.all_rest
    assert roster.rest_ends == began + 3
    await roster.wait(roster.rest_ends)
    assert trio.current_time() == began + 3
    roster.wake_rested()
    assert roster.take_due() == [other]
    assert roster.take_gone(()) == set()  # it was not forgotten in between
    await trio.sleep_until(began + 5)
    roster.wake_rested()
    assert roster.take_due() == [one]


async def test_another_object_takes_the_place_of_one_and_nothing_is_heard_of_the_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    roster, before, now = FetchRoster[One](), One(0), One(0)
    roster.put(before)
    roster.rest(before, 100.0)
    roster.put(now)
    assert not roster.holds(before)
    roster.rest(before, 100.0)
    roster.is_due(before)
    assert roster.take_due() == [now]
    assert roster.take_gone(()) == set()
    assert not roster.all_rest


async def test_what_is_removed_is_forgotten_and_asked_for_no_more() -> None:
    roster, one = FetchRoster[One](), One(0)
    roster.put(one)
    roster.remove(one.key)
    roster.remove((TOPIC, 7))
    assert not roster
    assert roster.take_due() == []
    assert roster.take_gone(()) == {one.key}
    roster.is_due(one)
    roster.begin()
    assert roster.take_due() == []


async def test_over_a_new_connection_all_are_due_but_those_that_rest() -> None:
    roster, one, resting = FetchRoster[One](), One(0), One(1)
    roster.put(one)
    roster.put(resting)
    roster.take_due()
    roster.rest(resting, trio.current_time() + 100)
    roster.begin()
    assert roster.take_due() == [one]


async def test_a_wait_ends_with_what_is_put_in(autojump_clock: trio.testing.MockClock) -> None:
    roster = FetchRoster[One]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(roster.wait)
        await trio.testing.wait_all_tasks_blocked()
        roster.put(One(0))
    assert len(roster) == 1
