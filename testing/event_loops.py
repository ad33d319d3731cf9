"""Which event loop is running here, and how to wait without blocking it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


def running() -> str | None:
    """`trio` or `asyncio` if this thread is running one of its tasks."""
    if trio.lowlevel.in_trio_task():
        return "trio"
    asyncio: Any = sys.modules.get("asyncio")  # a program that has not imported it does not run it
    try:
        return None if asyncio is None else asyncio.get_running_loop() and "asyncio"
    except RuntimeError:
        return None


def refuse_to_block() -> None:
    """Raise RuntimeError in a task: blocking it would keep the awaited thing from happening."""
    if running() is not None:
        raise RuntimeError(
            "wait_for would block the event loop, and with it whatever it waits for: await wait_for_async instead"
        )


async def in_worker_thread(function: Callable[[], T]) -> T:
    """The result of a blocking function, on asyncio and on Trio."""
    if running() == "trio":
        return await trio.to_thread.run_sync(function, abandon_on_cancel=True)
    import asyncio

    return await asyncio.to_thread(function)
