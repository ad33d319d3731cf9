"""Trio's scheduling by a seed, in virtual time that knows when nothing can happen any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from unittest import mock

import trio
from trio._core import _run as _trio_run

from ottla.simulation.storage.alarms import HangError, VirtualClock, sleep

__all__ = ["HangError", "run"]


def run(
    function: Callable[[], Awaitable[None]],
    seed: int,
    *,
    limit_s: float,
    hung: Callable[[HangError], None] | None = None,
) -> None:
    """Run a task to its end; equal seeds schedule equally.

    HangError if it does not end; `hung` is told before all that still waits is cancelled.
    """
    allowed = _trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    _trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    _trio_run._r.seed(seed)
    clock = VirtualClock(limit_s, hung)
    try:
        with mock.patch.object(trio, "sleep", sleep), mock.patch.object(trio, "current_time", clock.look):
            trio.run(function, clock=clock)
    except BaseException:
        if clock.hang is None:
            raise
    finally:
        _trio_run._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]
    if clock.hang is not None:
        raise clock.hang
