"""What belongs to a process stands still with it."""

from __future__ import annotations

from random import Random

import trio

from ottla.runtime.deadlines import Deadlines
from ottla.simulation.cluster.determinism import deterministic
from ottla.simulation.cluster.machines.pauses import PROCESS, Pauses
from ottla.simulation.harness import scheduling
from ottla.simulation.storage.workers import Workers


def test_a_timer_belongs_to_the_process_that_begins_it() -> None:
    """What it begins does as well, such as the write that says that a lock has ended."""
    told: list[tuple[int | None, float]] = []

    class Waiter:
        def expire(self) -> None:
            told.append((PROCESS.get(), trio.current_time()))

    async def live() -> None:
        pauses, deadlines = Pauses(), Deadlines()
        pauses.install()
        PROCESS.set(2)
        deadlines.add(Waiter(), 1.0)
        PROCESS.set(None)
        pauses.hold(2)
        await trio.sleep(3)
        assert told == []
        pauses.release(2)
        await trio.sleep(1)

    with deterministic(0, Workers(Random(0), pause_probability=0.0)):
        scheduling.run(live, 0, limit_s=10)
    assert told == [(2, 3.0)]
