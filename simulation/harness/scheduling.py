"""What makes a seed replay: Trio's order of tasks, virtual time, made-up ids, and the clocks that code looks at."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest import mock
from uuid import UUID

import trio
from trio._core import _run as _trio_run

from ottla.simulation.harness.alarms import HangError, VirtualClock, sleep

__all__ = ["HangError", "ids", "in_modules", "run", "scheduled"]


@contextmanager
def scheduled(seed: int) -> Iterator[None]:
    """Trio shuffles its tasks on purpose; while this is open, the seed shuffles them."""
    allowed = _trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    _trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    _trio_run._r.seed(seed)
    try:
        yield
    finally:
        _trio_run._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]


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
    clock = VirtualClock(limit_s, hung)
    with (
        scheduled(seed),
        mock.patch.object(trio, "sleep", sleep),
        mock.patch.object(trio, "current_time", clock.look),
    ):
        try:
            trio.run(function, clock=clock)
        except BaseException:
            if clock.hang is None:
                raise
    if clock.hang is not None:
        raise clock.hang


def ids(seed: int) -> Callable[[], UUID]:
    """Makes ids up, in place of `uuid.uuid4`."""
    rng = Random(f"ids {seed}")
    return lambda: uuid.UUID(int=rng.getrandbits(128), version=4)


@contextmanager
def in_modules(replaced: Mapping[Any, Any]) -> Iterator[None]:
    """While this is open, Ottla's modules have something else for each function that they have imported by its name."""
    back: dict[Any, Any] = {}
    for real, simulated in replaced.items():
        back.setdefault((real.__name__, simulated), real)
    _replace({(real.__name__, real): simulated for real, simulated in replaced.items()})
    try:
        yield
    finally:
        _replace(back)


def _replace(changes: Mapping[Any, Any]) -> None:
    for name, module in list(sys.modules.items()):
        if not name.startswith("ottla.") or module is None:
            continue
        for (attribute, before), after in changes.items():
            if getattr(module, attribute, None) is before:
                setattr(module, attribute, after)
