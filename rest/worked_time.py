"""How long the node works on one request, for the quota `request_percentage` (KIP-124): on the event loop and in worker
threads, without what the request waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from time import perf_counter
from types import coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


class WorkedTime:
    """The working time since the last call of `take`."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count what was worked."""
        self._seconds += seconds

    def take(self) -> float:
        """Return the counted time, and begin at zero again."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


_CURRENT: Final[ContextVar[WorkedTime | None]] = ContextVar("ottla_rest_worked_time", default=None)


async def counted(worked: WorkedTime, work: Coroutine[Any, Any, T]) -> T:
    """Await work, and count each of its turns on the event loop, and what it has done in worker threads."""
    before = _CURRENT.set(worked)
    try:
        return await _turns(worked, work)
    finally:
        _CURRENT.reset(before)


def in_thread(work: Callable[[], T]) -> Callable[[], T]:
    """The same work in a worker thread, counted for the request that it is for."""
    worked = _CURRENT.get()
    if worked is None:
        return work

    def timed() -> T:
        begun = perf_counter()
        try:
            return work()
        finally:
            worked.add(perf_counter() - begun)

    return timed


@coroutine
def _turns(worked: WorkedTime, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """`yield from work`, with a look at the clock before and after each turn."""
    sent: Any = None
    raised: BaseException | None = None
    while True:
        begun = perf_counter()
        try:
            waits_for = work.send(sent) if raised is None else work.throw(raised)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            worked.add(perf_counter() - begun)
        sent = raised = None
        try:
            sent = yield waits_for
        except BaseException as error:  # noqa: BLE001 - it is thrown into the work, which decides about it
            raised = error
