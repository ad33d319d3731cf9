"""Background work that fails unexpectedly.

Only a failure after which going on could lose or falsify data ends the process; docs/architecture.md ("What ends the
process") lists these few tasks. Everything else runs under the node's `Supervisor`: the failure is logged with where it
happened, counted (`ottla_task_failures_total`), and shown by `/readyz` and `ottla doctor`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import trio

from ottla.runtime.backoff import Backoff

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 30.0
SETTLED_SECONDS: Final = 60.0
"""A task that has run for so long since it failed is well again."""

_PRODUCT: Final = "ottla."
_PACKAGE: Final = "ottla.server."


class Tasks(Protocol):
    """A starter of background work: a trio.Nursery, or `Supervisor.tasks`, which outlives its failures."""

    def start_soon(self, async_fn: Callable[..., Awaitable[object]], /, *args: Any) -> None: ...


class Loop:
    """A function that goes on until it is cancelled: where its failures are outlived, it is begun again each time."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Awaitable[object]]) -> None:
        self.function = function

    async def __call__(self, *args: Any) -> None:
        await self.function(*args)


class _Failure(NamedTuple):
    """The last failure of a task that is begun again each time."""

    reason: str
    #: When it was begun again (trio.current_time), None while it rests.
    again_at: float | None


class Supervisor:
    """Outlives the failures of one node's background work, and knows of them.

    A task is named after its function, so that there are only so many names. A strict one outlives nothing, and raises
    what was raised: tests and simulations are to notice it.
    """

    def __init__(self, *, is_strict: bool = False) -> None:
        self._is_strict = is_strict
        #: How often each task has failed.
        self.failures: Counter[str] = Counter()
        self._kept: dict[str, _Failure] = {}
        self._given_up: dict[str, str] = {}

    def failing(self) -> dict[str, str]:
        """The tasks that do not do their work now, each with the reason of its last failure."""
        return {name: it.reason for name, it in self._kept.items() if not self._is_settled(it)}

    def given_up(self) -> dict[str, str]:
        """Single pieces of work that failed since the start and were not tried again, each with its last reason."""
        return dict(self._given_up)

    async def keep(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a loop, and begin it again when it fails, after a pause that grows. Returns when it returns."""
        name = task_name(function)
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while True:
            began = trio.current_time()
            try:
                await function(*args)
            except Exception as error:
                if self._is_strict:
                    raise
                if trio.current_time() - began >= SETTLED_SECONDS:
                    backoff.reset()
                pause = backoff.fail()
                self._note(name, error, f"it is begun again in {pause:.2g} s")
                self._kept[name] = _Failure(_reason(error), None)
            else:
                self._kept.pop(name, None)
                return
            await trio.sleep(pause)
            self._kept[name] = self._kept[name]._replace(again_at=trio.current_time())

    def tasks(self, nursery: trio.Nursery) -> Tasks:
        """Begin work in a nursery: a `Loop` is kept, and a single piece of work that fails ends alone."""
        return _Contained(self, nursery)

    def contained(self, function: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[None]]:
        """The same function, whose failure ends it alone: for subscribers, whom the next change calls again."""
        return partial(self._run_once, function)

    async def _run_once(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        try:
            await function(*args)
        except Exception as error:
            if self._is_strict:
                raise
            name = task_name(function)
            self._note(name, error, "the broker continues without it")
            self._given_up[name] = _reason(error)

    def _note(self, name: str, error: Exception, what_follows: str) -> None:
        self.failures[name] += 1
        keys = {"task": name, "error": _reason(error)}
        logger.error("the task %s failed, and %s", name, what_follows, exc_info=error, extra=keys)

    def _is_settled(self, failure: _Failure) -> bool:
        return failure.again_at is not None and trio.current_time() >= failure.again_at + SETTLED_SECONDS


class _Contained:
    def __init__(self, supervisor: Supervisor, nursery: trio.Nursery) -> None:
        self._supervisor = supervisor
        self._nursery = nursery

    def start_soon(self, async_fn: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        if isinstance(async_fn, Loop):
            function = async_fn.function
            self._nursery.start_soon(self._supervisor.keep, function, *args, name=task_name(function))
        else:
            self._nursery.start_soon(self._supervisor.contained(async_fn), *args, name=task_name(async_fn))


def task_name(function: Any) -> str:
    """`cluster.failure_detector.FailureDetector.run` for that method, and for what wraps it."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{function.__module__}.{name}".removeprefix(_PACKAGE).removeprefix(_PRODUCT)


def _reason(error: BaseException) -> str:
    """One line: of a group of exceptions the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".partition("\n")[0]
