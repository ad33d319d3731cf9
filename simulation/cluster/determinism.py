"""What makes a seed replay: made-up ids, the time that code measures, and calls that would take a thread."""

from __future__ import annotations

import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import trio

from ottla.metadata.controller import Controller
from ottla.simulation.cluster.machines.pauses import spawn_system_task
from ottla.simulation.harness.scheduling import ids
from ottla.simulation.harness.threads import divided, replaced
from ottla.simulation.storage.engine import repeatable
from ottla.simulation.storage.workers import Workers
from ottla.tiers.copying import Copying

__all__ = ["deterministic"]

_STEP_S = 4e-6
"""What a look at the clock costs, so that work done in slices of time is interrupted, at one place or another."""

_real_uuid4 = uuid.uuid4


@contextmanager
def deterministic(seed: int, workers: Workers) -> Iterator[None]:
    """While this is open, what runs in this thread depends on the seed alone. Nothing changes for other threads."""
    looks = 0

    def now() -> float:
        nonlocal looks
        looks += 1
        try:
            return trio.current_time() + looks * _STEP_S
        except RuntimeError:
            return looks * _STEP_S

    async def run_sync(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        return await workers.run(lambda: function(*args))

    make_id = divided(ids(seed), _real_uuid4)
    clocks = {real: divided(now, real) for real in (time.perf_counter, time.monotonic)}
    with (
        mock.patch.object(uuid, "uuid4", make_id),
        mock.patch.object(time, "perf_counter", clocks[time.perf_counter]),
        mock.patch.object(time, "monotonic", clocks[time.monotonic]),
        _drawn_from(random.Random(seed)),
        replaced(trio.to_thread, "run_sync", run_sync),
        replaced(trio.lowlevel, "spawn_system_task", spawn_system_task),
        mock.patch.dict(Controller.__init__.__kwdefaults__, new_uuid=make_id),
        mock.patch.dict(Copying.__init__.__kwdefaults__, new_number=make_id),
        repeatable(workers.new_lock),
        _in_modules({**clocks, _real_uuid4: make_id}),
    ):
        yield


@contextmanager
def _drawn_from(rng: random.Random) -> Iterator[None]:
    """While this is open, the functions of `random` draw from `rng` in this thread."""
    with ExitStack() as stack:
        for name in ("random", "uniform", "randrange", "randint", "choice", "shuffle", "sample"):
            stack.enter_context(replaced(random, name, getattr(rng, name)))
        yield


@contextmanager
def _in_modules(replaced: Mapping[Any, Any]) -> Iterator[None]:
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
