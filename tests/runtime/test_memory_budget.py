"""The memory budget, and its fairness under cancellation."""

from __future__ import annotations

import pytest
import trio

from ottla.runtime.memory_budget import MemoryBudget


async def test_room_is_given_at_once() -> None:
    budget = MemoryBudget(100)
    await budget.reserve(60)
    await budget.reserve(60)
    assert budget.used_bytes == 120
    assert not budget.has_room


async def test_waiters_are_served_in_order(autojump_clock: trio.testing.MockClock) -> None:
    budget = MemoryBudget(100)
    await budget.reserve(100)
    served: list[int] = []

    async def reader(number: int) -> None:
        await budget.reserve(100)
        served.append(number)
        await trio.sleep(1)
        budget.refund(100)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(reader, number)
            await trio.testing.wait_all_tasks_blocked()
        assert budget.waiting == 6
        budget.refund(100)
        await trio.testing.wait_all_tasks_blocked()
        assert budget.used_bytes == 100
    assert served == [0, 1, 2, 3, 4, 5]
    assert budget.used_bytes == 0


async def test_a_newcomer_does_not_overtake(autojump_clock: trio.testing.MockClock) -> None:
    budget = MemoryBudget(100)
    await budget.reserve(100)
    served: list[str] = []

    async def reader(name: str, size_bytes: int) -> None:
        await budget.reserve(size_bytes)
        served.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader, "large", 500)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(reader, "small", 1)
        await trio.testing.wait_all_tasks_blocked()
        budget.refund(10)
        await trio.testing.wait_all_tasks_blocked()
        assert served == ["large"]
        budget.refund(500)
    assert served == ["large", "small"]


async def test_a_cancelled_wait_charges_nothing_and_blocks_nobody(autojump_clock: trio.testing.MockClock) -> None:
    budget = MemoryBudget(100)
    await budget.reserve(100)
    with trio.move_on_after(1) as scope:
        await budget.reserve(30)
    assert scope.cancelled_caught
    assert (budget.used_bytes, budget.waiting) == (100, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.reserve, 70)
        await trio.testing.wait_all_tasks_blocked()
        budget.refund(100)
    assert budget.used_bytes == 70


async def test_a_cancelled_task_does_not_begin_to_reserve() -> None:
    budget = MemoryBudget(100)
    with trio.CancelScope() as scope:
        scope.cancel()
        await budget.reserve(10)
    assert scope.cancelled_caught
    assert budget.used_bytes == 0


async def test_waiting_alone_charges_nothing() -> None:
    budget = MemoryBudget(100)
    budget.charge(150)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.wait_available)
        await trio.testing.wait_all_tasks_blocked()
        assert budget.waiting == 1
        budget.refund(150)
    assert budget.used_bytes == 0


def test_refunds_are_checked() -> None:
    budget = MemoryBudget(100)
    budget.charge(5)
    with pytest.raises(AssertionError):
        budget.refund(6)
    with pytest.raises(ValueError, match="positive"):
        MemoryBudget(0)
