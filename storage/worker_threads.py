"""The threads for calls that may block."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class WorkerThreads(Protocol):
    """A node has one: its `StorageContext`. In a simulation there are no threads, and calls are steps of its own."""

    async def offload(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what may block, or takes long, without holding the event loop."""
        ...
