"""The quota of the time that the node works for a user: what counts, and who is answered later."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from ottla.rest import worked_time
from ottla.rest.node import NodeCaller
from ottla.rest.work import Work
from ottla.rest.worked_time import WorkedTime, counted
from ottla.server.quotas.clients import ClientQuotas

#: Work on so much is done in a worker thread.
MUCH_BYTES = 1_000_000


class Clock:
    """Stands still, unless somebody works."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def work(self, seconds: float) -> float:
        self.seconds += seconds
        return seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worked_time, "perf_counter", clock)
    return clock


async def test_work_counts_and_waiting_does_not(clock: Clock) -> None:
    worked, go = WorkedTime(), trio.Event()

    async def request() -> str:
        clock.work(1)
        await go.wait()
        clock.work(2)
        await trio.lowlevel.checkpoint()
        return "done"

    async def others() -> None:
        clock.work(100)
        go.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        assert await counted(worked, request()) == "done"
    assert (worked.take(), worked.take()) == (3, 0)


async def test_work_in_threads_counts(clock: Clock) -> None:
    worked, work = WorkedTime(), Work()
    assert await counted(worked, work.do(MUCH_BYTES, partial(clock.work, 4))) == 4
    # The loop's own turns may be on the clock while the thread moves it.
    assert worked.take() >= 4
    assert await work.do(MUCH_BYTES, partial(clock.work, 4)) == 4
    assert worked.take() == 0


async def test_failures_and_cancellation_go_through(clock: Clock) -> None:
    worked = WorkedTime()

    async def fails() -> None:
        clock.work(1)
        raise KeyError("x")

    async def waits() -> None:
        await trio.sleep_forever()

    async def recovers() -> str:
        with trio.move_on_after(0):
            await trio.sleep_forever()
        clock.work(2)
        return "recovered"

    with pytest.raises(KeyError):
        await counted(worked, fails())
    assert await counted(worked, recovers()) == "recovered"
    with trio.CancelScope() as scope:
        scope.cancel()
        await counted(worked, waits())
    assert scope.cancelled_caught
    assert worked.take() == 3


class Held:
    """Of a broker what quotas need."""

    def __init__(self) -> None:
        self.quotas = ClientQuotas()


async def test_who_takes_too_much_time_is_answered_a_second_later_at_most(
    autojump_clock: trio.testing.MockClock,
) -> None:
    broker: Any = Held()
    broker.quotas.set_quotas({(("user", "ann"),): {"request_percentage": 1.0}})
    ann, bob = NodeCaller(broker, "User:ann", None), NodeCaller(broker, "User:bob", None)
    began = trio.current_time()
    await bob.has_worked(60)
    await ann.has_worked(0.05)
    assert trio.current_time() == began
    await ann.has_worked(60)
    assert trio.current_time() == began + 1
    assert broker.quotas.throttles["request_percentage"].count == 1
