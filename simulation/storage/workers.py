"""Worker threads as simulated steps: a call begins, others run, the call goes on, and ends; the seed says when.

Each call runs in a greenlet, a stack of its own in the thread of the event loop. The loop hands over to it, and goes on
when it hands back: before operations of the disk, and at the end. So no two ever run at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any

import outcome
import trio
from greenlet import getcurrent, greenlet

__all__ = ["Workers"]


class _Thread:
    """A call that runs only while `step` waits for it."""

    def __init__(self, job: Callable[[], Any]) -> None:
        self._job = job
        self._stack = greenlet(self._run)
        self.outcome: outcome.Maybe[Any] | None = None

    def step(self) -> None:
        """Let it run up to its next pause, or to the end of its job."""
        self._stack.parent = getcurrent()
        self._stack.switch()

    def pause(self) -> None:
        """In the call: let the event loop go on."""
        assert self._stack.parent is not None
        self._stack.parent.switch()

    def _run(self) -> None:
        self.outcome = outcome.capture(self._job)


_given_up: list[_Thread] = []
"""Calls of simulations that have failed: a greenlet that is collected would run its `finally` somewhere."""


class _Lock:
    """A lock between simulated threads: a call that finds it taken lets the others run."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._is_held = False

    def __enter__(self) -> None:
        while self._is_held:
            self._workers.wait_for_another()
        self._is_held = True

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_held = False


class Workers:
    """Where calls run that may block: `run` is the log manager's `run_blocking`, `pause` the simulated disk's hook."""

    def __init__(self, rng: Random, *, pause_probability: float) -> None:
        self._rng = rng
        self._pause_probability = pause_probability
        self._current: _Thread | None = None
        self._under_way: list[_Thread] = []
        #: For how long one call or more has been held up so far, as the seed decided.
        self.held_up_s = 0.0
        self._held_up_until = 0.0

    async def run(self, function: Callable[[], Any]) -> Any:
        """As `trio.to_thread.run_sync`: once begun it cannot be cancelled."""
        await trio.lowlevel.checkpoint_if_cancelled()
        thread = _Thread(function)
        self._under_way.append(thread)
        try:
            while thread.outcome is None:
                await self._let_others_run()
                if thread.outcome is None:
                    self._step(thread)
        finally:
            self._under_way.remove(thread)
            if thread.outcome is None:
                _given_up.append(thread)
        await self._let_others_run()
        return thread.outcome.unwrap()

    def pause(self, operation: str) -> None:
        """Before an operation of the disk: in a worker thread, perhaps let the others run."""
        thread = self._current
        if thread is not None and self._rng.random() < self._pause_probability:
            thread.pause()

    def new_lock(self) -> _Lock:
        """What stands for `threading.Lock`."""
        return _Lock(self)

    def wait_for_another(self) -> None:
        """A lock is taken: a thread gives the baton back, the event loop lets the threads run."""
        if self._current is not None:
            self._current.pause()
            return
        for thread in list(self._under_way):
            if thread.outcome is None:
                self._step(thread)

    def _step(self, thread: _Thread) -> None:
        assert self._current is None
        self._current = thread
        try:
            thread.step()
        finally:
            self._current = None

    async def _let_others_run(self) -> None:
        if self._rng.random() < 0.8:
            for _ in range(self._rng.randint(1, 3)):
                await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            seconds = self._rng.choice((0.001, 0.01, 0.1))
            began = trio.current_time()
            ends = began + seconds
            self.held_up_s += max(0.0, ends - max(began, self._held_up_until))
            self._held_up_until = max(ends, self._held_up_until)
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)
