"""Work in the background that fails: what goes on, and what is told of it."""

from __future__ import annotations

import logging
from functools import partial

import pytest
import trio
import trio.testing

from ottla.runtime.backoff import JITTER
from ottla.runtime.supervisor import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    SETTLED_SECONDS,
    Loop,
    Supervisor,
)

pytestmark = pytest.mark.frozen_clock


class Work:
    """A loop that fails as often as it is told to, and then goes on."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.begun: list[float] = []

    async def run(self) -> None:
        self.begun.append(trio.current_time())
        if self.left:
            self.left -= 1
            raise ValueError("no good\nin two lines")
        await trio.sleep_forever()


async def test_a_loop_is_begun_again_after_pauses_that_grow(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor, work = Supervisor(), Work(12)
    nursery.start_soon(supervisor.keep, work.run)
    await trio.sleep(1000)
    pauses = [after - before for before, after in zip(work.begun, work.begun[1:], strict=False)]
    first, then = FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
    assert pauses[:3] == pytest.approx([first, 2 * first, 4 * first], rel=JITTER)
    assert pauses[-1] == pytest.approx(then, rel=JITTER)
    (name,) = supervisor.failures
    assert name.endswith("Work.run")
    assert supervisor.failures[name] == 12
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 12
    assert all(record.exc_info for record in errors)
    nursery.cancel_scope.cancel()


async def test_it_is_failing_until_it_has_run_for_a_while(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    supervisor, work = Supervisor(), Work(1)
    assert supervisor.failing() == {}
    nursery.start_soon(supervisor.keep, work.run)
    await trio.testing.wait_all_tasks_blocked()
    assert list(supervisor.failing().values()) == ["ValueError: no good"]
    await trio.sleep(SETTLED_SECONDS - 1)
    assert supervisor.failing()
    await trio.sleep(2)
    assert supervisor.failing() == {}
    nursery.cancel_scope.cancel()


async def test_a_piece_of_work_fails_alone(nursery: trio.Nursery) -> None:
    supervisor = Supervisor()
    done: list[str] = []

    async def good(name: str) -> None:
        await trio.lowlevel.checkpoint()
        done.append(name)

    async def bad() -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(partial(good, "inside"))
            raise LookupError("not there")

    tasks = supervisor.tasks(nursery)
    tasks.start_soon(bad)
    tasks.start_soon(good, "beside")
    await trio.testing.wait_all_tasks_blocked()
    assert done == ["beside"]
    assert list(supervisor.given_up().values()) == ["LookupError: not there"]
    assert list(supervisor.failures.values()) == [1]


async def test_a_loop_among_pieces_of_work_is_begun_again(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    supervisor, work = Supervisor(), Work(2)
    supervisor.tasks(nursery).start_soon(Loop(work.run))
    await trio.sleep(100)
    assert len(work.begun) == 3
    assert not supervisor.given_up()
    nursery.cancel_scope.cancel()


async def test_a_subscriber_that_fails_is_called_again(nursery: trio.Nursery) -> None:
    supervisor = Supervisor()
    seen: list[int] = []

    async def subscriber(number: int) -> None:
        seen.append(number)
        if number == 1:
            raise RuntimeError

    contained = supervisor.contained(subscriber)
    for number in (1, 2):
        await contained(number)
    assert seen == [1, 2]
    assert list(supervisor.failures.values()) == [1]


async def test_cancellation_passes(nursery: trio.Nursery) -> None:
    supervisor = Supervisor()
    with trio.move_on_after(0) as scope:
        await supervisor.keep(trio.sleep_forever)
    assert scope.cancelled_caught
    assert not supervisor.failures


async def test_a_strict_one_outlives_nothing() -> None:
    supervisor, work = Supervisor(is_strict=True), Work(1)
    with pytest.raises(ValueError, match="no good"):
        await supervisor.keep(work.run)
    work.left = 1
    with pytest.raises(ValueError, match="no good"):
        await supervisor.contained(work.run)()
