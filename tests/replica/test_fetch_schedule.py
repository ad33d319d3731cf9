"""Which partitions a fetcher asks for next."""

from __future__ import annotations

from uuid import UUID

import trio
import trio.testing

from ottla.replica.following.fetch_schedule import FetchSchedule

TOPIC = UUID(int=1)


class One:
    """A partition, as far as a roster looks at it."""

    def __init__(self, index: int) -> None:
        self.key = (TOPIC, index)


async def test_what_is_put_in_mark_pending_once_and_again_when_something_of_it_is_new() -> None:
    roster, one, other = FetchSchedule[One](), One(0), One(1)
    roster.put(one)
    roster.put(other)
    assert roster.take_pending() == [one, other]
    assert roster.take_pending() == []
    roster.mark_pending(other)
    assert roster.take_pending() == [other]


async def test_what_rests_is_forgotten_and_due_when_its_rest_is_over(autojump_clock: trio.testing.MockClock) -> None:
    roster, one, other = FetchSchedule[One](), One(0), One(1)
    roster.put(one)
    roster.put(other)
    await roster.wait()  # there is news already
    began = trio.current_time()
    roster.back_off(one, began + 5)
    assert roster.take_pending() == [other]
    assert roster.take_forgotten({other.key}) == {one.key}
    assert not roster.all_back_off
    roster.back_off(other, began + 3)
    assert roster.all_back_off
    assert roster.backoff_ends == began + 3
    await roster.wait(roster.backoff_ends)
    assert trio.current_time() == began + 3
    roster.end_backoffs()
    assert roster.take_pending() == [other]
    assert roster.take_forgotten(()) == set()  # it was not forgotten in between
    await trio.sleep_until(began + 5)
    roster.end_backoffs()
    assert roster.take_pending() == [one]


async def test_another_object_takes_the_place_of_one_and_nothing_is_heard_of_the_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    roster, before, now = FetchSchedule[One](), One(0), One(0)
    roster.put(before)
    roster.back_off(before, 100.0)
    roster.put(now)
    assert not roster.holds(before)
    roster.back_off(before, 100.0)
    roster.mark_pending(before)
    assert roster.take_pending() == [now]
    assert roster.take_forgotten(()) == set()
    assert not roster.all_back_off


async def test_what_is_removed_is_forgotten_and_asked_for_no_more() -> None:
    roster, one = FetchSchedule[One](), One(0)
    roster.put(one)
    roster.remove(one.key)
    roster.remove((TOPIC, 7))
    assert not roster
    assert roster.take_pending() == []
    assert roster.take_forgotten(()) == {one.key}
    roster.mark_pending(one)
    roster.begin()
    assert roster.take_pending() == []


async def test_over_a_new_connection_all_are_due_but_those_that_rest() -> None:
    roster, one, resting = FetchSchedule[One](), One(0), One(1)
    roster.put(one)
    roster.put(resting)
    roster.take_pending()
    roster.back_off(resting, trio.current_time() + 100)
    roster.begin()
    assert roster.take_pending() == [one]


async def test_a_wait_ends_with_what_is_put_in(autojump_clock: trio.testing.MockClock) -> None:
    roster = FetchSchedule[One]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(roster.wait)
        await trio.testing.wait_all_tasks_blocked()
        roster.put(One(0))
    assert len(roster) == 1
