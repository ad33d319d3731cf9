"""Which event loop runs here, and how to wait in it without holding it up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


def running() -> str | None:
    """`trio` or `asyncio` if this thread is in a task of it."""
    if trio.lowlevel.in_trio_task():
        return "trio"
    asyncio: Any = sys.modules.get("asyncio")  # whoever did not import it does not run it
    try:
        return None if asyncio is None else asyncio.get_running_loop() and "asyncio"
    except RuntimeError:
        return None


def refuse_to_block() -> None:
    """Raise RuntimeError in a task: what would be waited for could not happen meanwhile."""
    if running() is not None:
        raise RuntimeError("wait_for would block the event loop, and with it what it waits for: await wait_for_async")


async def in_worker_thread(function: Callable[[], T]) -> T:
    """The result of a function that blocks, on asyncio and on Trio."""
    if running() == "trio":
        return await trio.to_thread.run_sync(function, abandon_on_cancel=True)
    import asyncio

    return await asyncio.to_thread(function)
