"""The waits of a connection's task that its other callers may end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

import trio

T = TypeVar("T")


class TaskWait:
    """The wait of a connection's task. One at a time; each also ends when the task is cancelled."""

    __slots__ = ("_awaited", "_scope")

    def __init__(self) -> None:
        self._scope: trio.CancelScope | None = None
        self._awaited = -1

    @property
    def is_open(self) -> bool:
        """Whether the task waits for something here."""
        return self._scope is not None

    def interrupt(self) -> bool:
        """End the wait; False if the task does not wait here."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True

    def is_ended_by(self, in_flight: int) -> bool:
        """Whether the task waits until at most so many requests are in flight."""
        return in_flight <= self._awaited

    async def until_in_flight(self, allowed: int) -> None:
        """Wait until `interrupt`, which is called when at most `allowed` requests are in flight (`is_ended_by`)."""
        self._awaited = allowed
        try:
            await self.interruptible(trio.sleep_forever)
        finally:
            self._awaited = -1

    async def interruptible(self, step: Callable[[], Awaitable[T]], *, deadline: float = inf) -> T | None:
        """Run `step` and return its result; None if `interrupt` or the deadline has ended it."""
        result = None
        try:
            with trio.CancelScope(deadline=deadline) as self._scope:
                result = await step()
        finally:
            self._scope = None
        return result
