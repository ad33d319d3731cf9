"""Processes that stand still, as a frozen machine's do: none of their tasks runs, while time goes by for all others.

Each task belongs to the process in whose context it was begun. A task of a process that stands still is put aside when
its turn comes, and runs when the process goes on; all the deadlines that have passed meanwhile have passed for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar
from typing import Any, Final

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT

__all__ = ["PROCESS", "Pauses", "spawn_system_task"]

PROCESS: ContextVar[int | None] = ContextVar("PROCESS", default=None)
"""The node whose process a task belongs to; None for clients and for the simulation itself."""

_spawn: Final = trio.lowlevel.spawn_system_task


def spawn_system_task(
    function: Callable[..., Awaitable[object]], *args: Any, name: object = None, context: Context | None = None
) -> trio.lowlevel.Task:
    """What stands for Trio's: a timer belongs to the process that begins it, and so does all that the timer begins."""
    if context is None:
        context = GLOBAL_RUN_CONTEXT.runner.system_context.copy()
    context.run(PROCESS.set, PROCESS.get())
    return _spawn(function, *args, name=name, context=context)


class Pauses:
    """Holds the processes of the run that it is installed in."""

    def __init__(self) -> None:
        self._held: dict[int, list[Any]] = {}
        self._runner: Any = None

    def install(self) -> None:
        self._runner = GLOBAL_RUN_CONTEXT.runner

    def is_held(self, node_id: int) -> bool:
        return node_id in self._held

    def hold(self, node_id: int) -> None:
        """Let none of its tasks run from now on, except one that runs right now."""
        if not self._held:
            self._runner.runq = _Queue(self._runner.runq)
            self._runner.runq.held = self._held
        self._held.setdefault(node_id, [])

    def release(self, node_id: int) -> None:
        """Go on."""
        tasks = self._held.pop(node_id, None)
        if tasks is None:
            return
        if not self._held:
            self._runner.runq = deque(self._runner.runq)
        self._runner.runq.extend(tasks)

    def release_all(self) -> None:
        """Let everybody go on: a process that stands still does not end, even when it is cancelled."""
        for node_id in list(self._held):
            self.release(node_id)


class _Queue(deque[Any]):
    """Trio's queue of tasks that can run, while a process stands still."""

    held: dict[int, list[Any]]

    def append(self, task: Any) -> None:
        aside = self.held.get(task.context.get(PROCESS))
        if aside is None:
            super().append(task)
        else:
            aside.append(task)
