"""What makes a seed replay: Trio's order of tasks, virtual time and made-up ids."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest import mock
from uuid import UUID

import trio
from trio._core import _run as _trio_run

from ottla.simulation.harness.alarms import HangError, VirtualClock, sleep
from ottla.simulation.harness.threads import Divided, replaced

__all__ = ["HangError", "ids", "run", "scheduled"]


@contextmanager
def scheduled(seed: int) -> Iterator[None]:
    """Trio shuffles its tasks on purpose; while this is open, the seed shuffles those of this thread."""
    shuffler: Any = Divided(Random(seed), _trio_run._r)
    with (
        mock.patch.object(_trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", new=True),
        mock.patch.object(_trio_run, "_r", shuffler),
    ):
        yield


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
    with scheduled(seed), replaced(trio, "sleep", sleep):
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
