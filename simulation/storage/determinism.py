"""Trio's scheduling by a seed, and virtual time that knows when nothing can happen any more."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio
import trio.testing
from trio._core import _run as _trio_run

__all__ = ["HangError", "run"]

_IDLE_TURNS = 1000


class HangError(AssertionError):
    """Everything waits, and nothing that is awaited can come; or it takes for ever."""


def _clock(limit_s: float) -> trio.testing.MockClock:
    """Time jumps to the next deadline, and ends a run that has none left, or goes on for too long.

    From outside, because a wait that is shielded can be ended by nothing else.
    """
    clock = trio.testing.MockClock(autojump_threshold=0)
    clock._real_clock = lambda: 0.0
    sleep_time_of = clock.deadline_to_sleep_time
    idle_turns = 0

    def deadline_to_sleep_time(deadline: float) -> float:
        nonlocal idle_turns
        idle_turns = idle_turns + 1 if deadline == math.inf else 0
        if idle_turns > _IDLE_TURNS:
            raise HangError("everything waits for ever")
        if clock.current_time() > limit_s:
            raise HangError(f"not done after {limit_s} simulated seconds")
        return sleep_time_of(deadline)

    clock.deadline_to_sleep_time = deadline_to_sleep_time  # type: ignore[method-assign]
    return clock


def run(function: Callable[[], Awaitable[None]], seed: int, *, limit_s: float) -> None:
    """Run a task to its end; equal seeds schedule equally. HangError if it does not end."""
    allowed = _trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    _trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    _trio_run._r.seed(seed)
    try:
        trio.run(function, clock=_clock(limit_s))
    except trio.TrioInternalError as error:
        if isinstance(error.__cause__, HangError):
            raise error.__cause__ from None
        raise
    finally:
        _trio_run._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]
