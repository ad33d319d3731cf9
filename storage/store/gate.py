"""The life of a store, and the gate that every user of its files goes through.

The rules:

- A store is opening, then serving, then closing, then closed. `LogManager`, its one owner, moves it on.
- The life of a store is enforced by its gate. Every user of its files is inside: the write loop while it runs,
  sealing and checkpoints, a pass of the cleaner, each read of a file and each look ahead. Nobody enters unless the
  store is serving.
- Closing shuts the gate, cancels what would take long (`interruptible`) and waits until nobody is inside. Only then
  are descriptors closed and files removed. So no descriptor is closed under a call that uses its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import TracebackType

import trio

from ottla.storage.errors import LogClosedError

__all__ = ["Gate", "Life"]


class Life(Enum):
    """The states of a store, in their order."""

    OPENING = "opening"
    SERVING = "serving"
    CLOSING = "closing"
    CLOSED = "closed"


class Gate:
    """Counts who is inside. `with gate:` is one use; entering raises LogClosedError unless the store is serving."""

    __slots__ = ("_emptied", "_inside", "_interruptible", "life")

    def __init__(self) -> None:
        self.life = Life.OPENING
        self._inside = 0
        # A set takes three times as much memory while it is empty, and there are many stores.
        self._interruptible: dict[trio.CancelScope, None] = {}
        self._emptied: trio.Event | None = None

    @property
    def is_open(self) -> bool:
        return self.life is Life.SERVING

    @property
    def is_closed(self) -> bool:
        return self.life is Life.CLOSED

    def open(self) -> None:
        """Recovery has ended: let users in."""
        assert self.life is Life.OPENING
        self.life = Life.SERVING

    def enter(self) -> None:
        """Be inside until `leave`; LogClosedError unless the store is serving."""
        if self.life is not Life.SERVING:
            raise LogClosedError(f"the store is {self.life.value}")
        self._inside += 1

    def leave(self) -> None:
        """End one use."""
        self._inside -= 1
        assert self._inside >= 0, "somebody left who had not entered"
        if not self._inside and self._emptied is not None:
            self._emptied.set()

    def __enter__(self) -> None:
        self.enter()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Be inside until done, or until the gate is shut: then the block is cancelled at its next checkpoint."""
        with self, trio.CancelScope() as scope:
            self._interruptible[scope] = None
            try:
                yield
            finally:
                del self._interruptible[scope]

    async def shut(self) -> None:
        """Let nobody in any more, and return when nobody is inside. A second call waits as the first does."""
        if self.life is Life.CLOSED:
            return
        self.life = Life.CLOSING
        for scope in self._interruptible:
            scope.cancel()
        if self._inside:
            if self._emptied is None:
                self._emptied = trio.Event()
            await self._emptied.wait()

    def closed(self) -> None:
        """Everything that the store held is given back."""
        assert self.life is Life.CLOSING
        assert not self._inside
        self.life = Life.CLOSED
