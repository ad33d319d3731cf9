"""Calls that may block, in tests without a storage context."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import trio

P = ParamSpec("P")
T = TypeVar("T")


class RealThreads:
    """In a thread of Trio's."""

    async def offload(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await trio.to_thread.run_sync(partial(function, *args, **kwargs))


class InPlace:
    """At once, after a checkpoint."""

    async def offload(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await trio.lowlevel.checkpoint()
        return function(*args, **kwargs)
