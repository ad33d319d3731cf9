"""How long calls are kept off the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

import trio

__all__ = ["Offload", "in_a_thread"]

P = ParamSpec("P")
T = TypeVar("T")


class Offload(Protocol):
    """Runs a call and returns what it returns: in a worker thread, or in a simulation in a step of its own."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...


async def in_a_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs it in a worker thread, and waits for its end even if cancelled."""
    return await trio.to_thread.run_sync(partial(function, *args, **kwargs))
