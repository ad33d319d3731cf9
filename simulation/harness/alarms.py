"""Virtual time: it jumps to what comes next when nothing can run, and wakes tasks without a cancel scope for each.

Trio ends a `sleep` by cancelling it, and its autojump takes a turn of the loop. Simulated nodes mostly wait for a
moment, so seeds run faster with an `Alarm` for each wait. What runs when is the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT, CancelStatus

from ottla.simulation.harness.turns import spare_the_kernel

__all__ = ["Alarm", "HangError", "VirtualClock", "sleep"]

_IDLE_TURNS: Final = 1000
_ATTEMPTS_TO_END: Final = 20
_SECONDS_TO_END: Final = 100.0


class HangError(AssertionError):
    """Everything waits, and nothing that is awaited can come; or it takes forever."""


class VirtualClock(trio.abc.Clock):
    """Begins at 0. When nothing can happen any more, or after `limit_s`, the run has hung: `hung` is told.

    All of it is cancelled then, shielded or not: tasks that were left behind would be reported when they are collected,
    in the middle of anything else. HangError, out of `trio.run`, if they do not end even so.
    """

    def __init__(self, limit_s: float, hung: Callable[[HangError], None] | None = None) -> None:
        self._hung = hung
        self._attempts_to_end = 0
        #: Why the run was ended.
        self.hang: HangError | None = None
        self._now_s = 0.0
        self._limit_s = limit_s
        self._idle_turns = 0
        self._numbers = itertools.count()
        #: When, in which order, and whose; those that are not for their alarm's time any more are left in it.
        self._alarms: list[tuple[float, int, Alarm]] = []

    def start_clock(self) -> None:
        """Trio calls this when a run begins. Nothing but the simulation moves it."""
        spare_the_kernel(GLOBAL_RUN_CONTEXT.runner)

    def current_time(self) -> float:
        return self._now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Trio asks this when no task can run: it is the next deadline now, or the first alarms are rung."""
        alarms = self._alarms
        while alarms and not alarms[0][2].is_set_for(alarms[0][0]):
            heappop(alarms)
        next_s = min(deadline, alarms[0][0]) if alarms else deadline
        if next_s == math.inf:
            self._idle_turns += 1
            if self._idle_turns > _IDLE_TURNS:
                self._end_run(HangError("everything waits forever"))
            return 0
        if next_s > self._limit_s:
            self._end_run(HangError(f"not done after {self._limit_s} simulated seconds"))
            return 0
        self._idle_turns = 0
        self._now_s = max(self._now_s, next_s)
        while alarms and alarms[0][0] <= self._now_s:
            at, _, alarm = heappop(alarms)
            if alarm.is_set_for(at):
                alarm.ring()
        return 0

    def _end_run(self, error: HangError) -> None:
        """Cancel all tasks. What they do then may hang once more, and is cancelled again."""
        if self.hang is None:
            self.hang = error
            if self._hung is not None:
                self._hung(error)
        if self._attempts_to_end == _ATTEMPTS_TO_END:
            raise self.hang
        self._attempts_to_end += 1
        self._idle_turns = 0
        self._limit_s = self._now_s + _SECONDS_TO_END
        runner = GLOBAL_RUN_CONTEXT.runner
        assert runner.system_nursery is not None
        for task in runner.tasks:
            status: CancelStatus | None = task._cancel_status
            while status is not None:
                status._scope.shield = False
                status = status._parent
        runner.system_nursery.cancel_scope.cancel()

    def put(self, at: float, alarm: Alarm) -> None:
        heappush(self._alarms, (at, next(self._numbers), alarm))


class Alarm:
    """Wakes one task at a time; its moment may come nearer while that waits."""

    __slots__ = ("_at", "_task")

    def __init__(self) -> None:
        self._at = math.inf
        self._task: trio.lowlevel.Task | None = None

    async def wait(self, at: float) -> None:
        """Wait until that time, or until it is rung."""
        self._task = GLOBAL_RUN_CONTEXT.task
        self._at = math.inf
        self.bring_forward(at)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            if self._task is None:
                return trio.lowlevel.Abort.FAILED  # it has rung already
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def bring_forward(self, at: float) -> None:
        """Ring at this time, if that is before the one that it is set for."""
        if self._task is None or at >= self._at:
            return
        self._at = at
        clock = GLOBAL_RUN_CONTEXT.runner.clock
        assert isinstance(clock, VirtualClock)
        if at <= clock.current_time():
            self.ring()
        else:
            clock.put(at, self)

    def ring(self) -> None:
        """Wake its task now, if one waits."""
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    def is_set_for(self, at: float) -> bool:
        return self._task is not None and self._at == at


async def sleep(seconds: float) -> None:
    """Stands for `trio.sleep`."""
    if seconds < 0 or math.isnan(seconds):
        raise ValueError("`seconds` must be non-negative")
    if seconds == 0:
        await trio.lowlevel.checkpoint()
    else:
        await Alarm().wait(trio.current_time() + seconds)
