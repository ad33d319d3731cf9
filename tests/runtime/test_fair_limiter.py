"""The fair limiter: few in each round, all in the end, in their order."""

from __future__ import annotations

from collections import Counter

import trio

from ottla.runtime.fair_limiter import FairLimiter


async def test_a_few_go_through_in_each_round_in_the_order_in_which_they_come() -> None:
    limiter = FairLimiter(3)
    rounds: list[int] = []
    order: list[int] = []
    round_number = 0
    is_over = False

    async def count_rounds() -> None:
        nonlocal round_number
        while not is_over:
            round_number += 1
            await trio.lowlevel.checkpoint()

    async def pass_by(number: int) -> None:
        await trio.sleep_until(number / 1e6 - 1)  # in the order of the numbers
        await limiter.acquire()
        rounds.append(round_number)
        order.append(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_rounds)
        async with trio.open_nursery() as passing:
            for number in range(30):
                passing.start_soon(pass_by, number)
        is_over = True
    assert max(Counter(rounds).values()) <= 3
    assert sorted(order) == list(range(30))


async def test_who_gives_up_takes_no_place(nursery: trio.Nursery) -> None:
    limiter = FairLimiter(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await limiter.acquire()
    assert scope.cancelled_caught
    with trio.fail_after(10):
        await limiter.acquire()
