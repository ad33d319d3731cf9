"""How long the request under way has waited for others: for a flush, for records, for the members of a group.

It is what Kafka calls remote time. What waits on behalf of a request (a purgatory, a coordinator's write) notes it
here; the dispatcher asks when the request is answered. A connection has one cell for its requests, which its tasks
share; work that no single request asked for notes nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from time import perf_counter
from typing import Final

_CELL: Final[ContextVar[list[float] | None]] = ContextVar("ottla_waited_seconds", default=None)


def begin_connection() -> None:
    """From here on this task, and those that it starts, work for the requests of one connection."""
    _CELL.set([0.0])


def begin_background() -> None:
    """From here on this task works for nobody in particular."""
    _CELL.set(None)


def begin_request() -> None:
    """The next request of the connection has waited for nothing so far."""
    cell = _CELL.get()
    if cell is not None:
        cell[0] = 0.0


class Waiting:
    """A block in which the request waits: `with remote_time.Waiting(): …` notes how long that was."""

    __slots__ = ("_began",)

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        cell = _CELL.get()
        if cell is not None:
            cell[0] += perf_counter() - self._began


def waited_seconds() -> float:
    """How long the present request of this task's connection has waited."""
    cell = _CELL.get()
    return 0.0 if cell is None else cell[0]
