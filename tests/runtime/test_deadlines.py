"""One timer for many deadlines: who is told and when, and what is kept."""

from __future__ import annotations

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from ottla.runtime.deadlines import Deadlines


class Waiter:
    def __init__(self) -> None:
        self.told_at: list[float] = []

    def expire(self) -> None:
        self.told_at.append(trio.current_time())


async def test_each_is_told_at_its_deadline_also_if_it_came_later(autojump_clock: MockClock) -> None:
    deadlines = Deadlines()
    waiters = {delay: Waiter() for delay in (5.0, 1.0, 3.0, 1.0)}
    start = trio.current_time()
    for delay, waiter in waiters.items():
        deadlines.add(waiter, start + delay)
    await trio.sleep(10)
    assert {delay: waiter.told_at for delay, waiter in waiters.items()} == {delay: [start + delay] for delay in waiters}
    assert len(deadlines) == 0


async def test_a_deadline_in_the_past_is_told_soon(autojump_clock: MockClock) -> None:
    deadlines, waiter = Deadlines(), Waiter()
    deadlines.add(waiter, trio.current_time() - 1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(waiter.told_at) == 1


async def test_who_has_left_is_not_told(autojump_clock: MockClock) -> None:
    deadlines, gone, there = Deadlines(), Waiter(), Waiter()
    left = deadlines.add(gone, trio.current_time() + 1)
    stays = deadlines.add(there, trio.current_time() + 2)
    deadlines.leave(left)
    await trio.sleep(3)
    assert (gone.told_at, len(there.told_at)) == ([], 1)
    deadlines.leave(stays)
    assert len(deadlines) == 0


async def test_the_timer_begins_again_after_it_had_nothing_to_do(autojump_clock: MockClock) -> None:
    deadlines = Deadlines()
    for _ in range(2):
        waiter = Waiter()
        deadlines.add(waiter, trio.current_time() + 1)
        await trio.sleep(2)
        assert len(waiter.told_at) == 1


async def test_what_is_kept_of_those_that_left_is_bounded(autojump_clock: MockClock) -> None:
    deadlines, there = Deadlines(), Waiter()
    deadlines.add(there, trio.current_time() + 7)
    for _ in range(1000):
        deadlines.leave(deadlines.add(Waiter(), trio.current_time() + 30))
        assert len(deadlines) < 200
    await trio.sleep(8)
    assert len(there.told_at) == 1


@given(st.lists(st.tuples(st.integers(1, 20), st.none() | st.integers(1, 20)), max_size=150))
def test_exactly_those_are_told_that_have_not_left_before(drawn: list[tuple[int, int | None]]) -> None:
    """Each waits until its deadline, or leaves before or after it."""

    async def run() -> None:
        deadlines = Deadlines()
        start = trio.current_time()
        waiters = []
        async with trio.open_nursery() as nursery:

            async def wait(waiter: Waiter, deadline: int, leaves: int | None) -> None:
                cell = deadlines.add(waiter, start + deadline)
                if leaves is not None:
                    await trio.sleep(leaves - 0.5)
                    deadlines.leave(cell)

            for deadline, leaves in drawn:
                waiter = Waiter()
                waiters.append(waiter)
                nursery.start_soon(wait, waiter, deadline, leaves)
            await trio.sleep(30)
        for waiter, (deadline, leaves) in zip(waiters, drawn, strict=True):
            left_before = leaves is not None and leaves - 0.5 < deadline
            assert waiter.told_at == ([] if left_before else [start + deadline])
        assert len(deadlines) == 0

    trio.run(run, clock=MockClock(autojump_threshold=0))
