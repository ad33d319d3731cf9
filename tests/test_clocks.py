"""The clock of tests that run in real time."""

from __future__ import annotations

import time

import pytest
import trio

from tests import clocks


async def test_waiting_counts_in_full() -> None:
    began, real = trio.current_time(), time.monotonic()
    for _ in range(5):
        await trio.sleep(0.02)
    assert trio.current_time() - began >= 0.1
    assert time.monotonic() - real >= 0.1


async def test_a_thread_that_is_waited_for_counts() -> None:
    began = trio.current_time()
    with trio.move_on_after(10):
        await trio.to_thread.run_sync(time.sleep, 0.1)
    assert trio.current_time() - began >= 0.09


class Machine:
    """A thread's two clocks, as other processes leave it the core or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.real = self.own = 100.0
        monkeypatch.setattr(clocks, "monotonic", lambda: self.real)
        monkeypatch.setattr(clocks, "thread_time", lambda: self.own)
        self.clock = clocks.OwnTimeClock()
        self.clock.start_clock()

    def passes(self, *, real: float, own: float = 0.0) -> float:
        """What the clock shows after so much of both."""
        self.real += real
        self.own += own
        return round(self.clock.current_time(), 6)


def test_what_other_processes_take_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine(monkeypatch).passes(real=2.0, own=0.5) == 0.5


def test_who_is_woken_late_has_waited_until_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert machine.clock.deadline_to_sleep_time(0.1) == pytest.approx(0.1)
    assert machine.passes(real=3.0) == pytest.approx(0.1)
    assert machine.passes(real=1.0) == pytest.approx(0.1)


def test_who_is_woken_early_has_waited_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.clock.deadline_to_sleep_time(10)
    assert machine.passes(real=0.25) == pytest.approx(0.25)
    machine.clock.deadline_to_sleep_time(float("inf"))
    assert machine.passes(real=5.0) == pytest.approx(5.25)
