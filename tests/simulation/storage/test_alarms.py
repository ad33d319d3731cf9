"""Virtual time and what waits for it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from ottla.simulation.harness.alarms import Alarm, HangError
from ottla.simulation.harness.scheduling import run


def lived(function: Callable[[], Awaitable[None]], *, limit_s: float = 100.0) -> None:
    run(function, 0, limit_s=limit_s)


def test_who_sleeps_wakes_in_order_among_deadlines() -> None:
    woken: list[tuple[float, str]] = []

    async def sleep(seconds: float) -> None:
        await trio.sleep(seconds)
        woken.append((trio.current_time(), "slept"))

    async def give_up(seconds: float) -> None:
        with trio.move_on_after(seconds):
            await trio.sleep_forever()
        woken.append((trio.current_time(), "given up"))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for seconds in (3, 1, 0.5):
                nursery.start_soon(sleep, seconds)
                nursery.start_soon(give_up, seconds + 0.25)

    lived(main)
    assert woken == [
        (0.5, "slept"),
        (0.75, "given up"),
        (1.0, "slept"),
        (1.25, "given up"),
        (3.0, "slept"),
        (3.25, "given up"),
    ]


def test_an_alarm_that_rings_at_once_wakes_who_is_cancelled_once() -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await Alarm().wait(trio.current_time())
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught

    lived(main)


def test_an_alarm_can_come_nearer_and_not_go_away() -> None:
    async def main() -> None:
        alarm = Alarm()
        async with trio.open_nursery() as nursery:

            async def bring_forward() -> None:
                await trio.sleep(1)
                alarm.bring_forward(20)
                alarm.bring_forward(4)
                alarm.bring_forward(7)

            nursery.start_soon(bring_forward)
            await alarm.wait(10)
            assert trio.current_time() == 4
            # What it was set for before wakes nobody.
            await alarm.wait(30)
            assert trio.current_time() == 30

    lived(main)


def test_a_cancelled_wait_wakes_nobody_later() -> None:
    async def main() -> None:
        alarm = Alarm()
        with trio.move_on_after(1) as scope:
            await alarm.wait(5)
        assert scope.cancelled_caught
        assert trio.current_time() == 1
        alarm.ring()
        await alarm.wait(9)
        assert trio.current_time() == 9

    lived(main)


def test_what_is_over_does_not_wait() -> None:
    async def main() -> None:
        await trio.sleep(2)
        await Alarm().wait(1)
        assert trio.current_time() == 2
        with pytest.raises(ValueError, match="non-negative"):
            await trio.sleep(-1)

    lived(main)


async def stubborn(ended: list[str]) -> None:
    """Waits as the write loop does, and at its end once more."""
    try:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
            ended.append("shielded")


async def crowd(ended: list[str], seconds: float) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stubborn, ended)
        try:
            await trio.sleep(seconds)
            await trio.Event().wait()
        finally:
            ended.append("plain")


@pytest.mark.parametrize(
    ("seconds", "said"), [(1, "everything waits forever"), (101, "not done after 100.0 simulated seconds")]
)
def test_a_run_that_hangs_is_told_and_leaves_nothing_behind(seconds: float, said: str) -> None:
    """What was left would be reported when it is collected, in the middle of another test."""
    told: list[str] = []
    ended: list[str] = []
    reported: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, reported.append
    try:
        with pytest.raises(HangError, match=said):
            run(partial(crowd, ended, seconds), 0, limit_s=100.0, hung=lambda error: told.append(str(error)))
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert told == [said]
    assert sorted(ended) == ["plain", "shielded"]
    assert reported == []
