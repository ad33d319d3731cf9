"""Work that is counted: light work by all at once, heavy work one after the other, and not without end."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.memory_budget import MemoryBudget
from ottla.runtime.work import LIGHT_ELEMENTS, LargeRequestQueue, Work

LIMIT = 5_000


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(100)


@pytest.fixture
def queue(budget: MemoryBudget) -> LargeRequestQueue:
    return LargeRequestQueue(lambda: LIMIT, budget)


async def test_light_work_needs_no_queue(queue: LargeRequestQueue) -> None:
    await queue.enter()
    works = [Work(queue) for _ in range(10)]
    for work in works:
        await work.charge(LIGHT_ELEMENTS)
    assert [work.elements for work in works] == [LIGHT_ELEMENTS] * 10


async def test_heavy_work_is_done_one_after_the_other(queue: LargeRequestQueue, nursery: trio.Nursery) -> None:
    under_way: list[int] = []
    most: list[int] = []

    async def do(number: int) -> None:
        work = Work(queue)
        async for _ in work.over(range(LIGHT_ELEMENTS)):
            pass
        async for _ in work.over(range(100)):
            if number not in under_way:
                under_way.append(number)
            most.append(len(under_way))
            await trio.lowlevel.checkpoint()
        under_way.remove(number)
        work.leave_queue()
        work.leave_queue()

    async with trio.open_nursery() as doing:
        for number in range(5):
            doing.start_soon(do, number)
    assert max(most) == 1


async def test_names_are_sorted_a_run_at_a_time(queue: LargeRequestQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.runtime.time_slice.SLICE_SECONDS", 0)
    names = [f"{n * 7919 % 5_000:04}" for n in range(LIMIT + 500)]
    taken = 0

    def take() -> Iterator[str]:
        nonlocal taken
        for name in names:
            taken += 1
            yield name

    longest = 0

    async def watch() -> None:
        nonlocal longest
        seen = 0
        while taken < len(names):
            longest = max(longest, taken - seen)
            seen = taken
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        work = Work(queue)
        assert list(await work.sorted(take())) == sorted(names)
    assert work.elements == 0
    # Two runs may end before the watch comes round again.
    assert 0 < longest <= 2 * LIGHT_ELEMENTS


async def test_it_waits_until_there_is_memory_for_it(
    queue: LargeRequestQueue, budget: MemoryBudget, nursery: trio.Nursery
) -> None:
    budget.charge(100)
    work = Work(queue)
    nursery.start_soon(work.charge, LIGHT_ELEMENTS + 1)
    await wait_all_tasks_blocked()
    assert budget.waiting == 1
    budget.refund(1)
    await wait_all_tasks_blocked()
    assert budget.waiting == 0
    work.leave_queue()


async def test_who_gives_up_waiting_leaves_the_queue_to_others(queue: LargeRequestQueue, budget: MemoryBudget) -> None:
    budget.charge(100)
    with trio.move_on_after(0):
        await Work(queue).charge(LIGHT_ELEMENTS + 1)
    budget.refund(100)
    work = Work(queue)
    with trio.fail_after(1):
        await work.charge(LIGHT_ELEMENTS + 1)
    work.leave_queue()


async def test_there_is_an_end(queue: LargeRequestQueue) -> None:
    work = Work(queue)
    await work.charge(LIMIT)
    with pytest.raises(CloseConnectionError, match="more than 5000 elements"):
        await work.charge()
    work.leave_queue()
    with trio.fail_after(1):
        await queue.enter()


async def test_steps_count_and_return_their_result(queue: LargeRequestQueue) -> None:
    def steps(count: int) -> Generator[None, None, str]:
        for _ in range(count):
            yield
        return "done"

    work = Work(queue)
    assert await work.run(steps(3)) == "done"
    assert work.elements == 3 * 128
    assert await work.run(steps(1_000), counts=False) == "done"
    assert work.elements == 3 * 128


async def test_others_run_in_between(nursery: trio.Nursery) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(other)
    async for _ in Work().over(range(50_000)):
        pass
    assert turns > 3
    nursery.cancel_scope.cancel()
