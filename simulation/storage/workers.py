"""Worker threads as simulated steps: a call begins, others run, the call goes on, and ends; the seed says when.

Each call runs in a real thread, but no two threads ever run at a time: the event loop hands over the baton and waits
until the thread gives it back, which it does before operations of the disk, and at the end.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any

import outcome
import trio

__all__ = ["Workers"]

_STUCK_S = 60.0


class _Thread:
    """A thread that runs only while `step` waits for it. It outlives its jobs, and serves one simulation at a time."""

    def __init__(self) -> None:
        self._go, self._back = allocate_lock(), allocate_lock()
        self._go.acquire()
        self._back.acquire()
        self._job: Callable[[], Any] = lambda: None
        self.outcome: outcome.Maybe[Any] | None = None
        threading.Thread(target=self._serve, name="simulated worker", daemon=True).start()

    def begin(self, job: Callable[[], Any]) -> None:
        self._job = job
        self.outcome = None

    def step(self) -> None:
        """Let the thread run up to its next pause, or to the end of its job."""
        self._go.release()
        if not self._back.acquire(timeout=_STUCK_S):
            raise AssertionError("a worker thread waits for what no other step can bring")

    def pause(self) -> None:
        """In the thread: give the baton back and wait for it."""
        self._back.release()
        self._go.acquire()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            self.outcome = outcome.capture(self._job)
            self._job = lambda: None
            self._back.release()


_idle: list[_Thread] = []


class _Lock:
    """A lock between simulated threads: who finds it taken lets the others run."""

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

    async def run(self, function: Callable[[], Any]) -> Any:
        """As `trio.to_thread.run_sync`: once begun it cannot be cancelled."""
        await trio.lowlevel.checkpoint_if_cancelled()
        thread = _idle.pop() if _idle else _Thread()
        thread.begin(function)
        self._under_way.append(thread)
        try:
            while thread.outcome is None:
                await self._let_others_run()
                if thread.outcome is None:
                    self._step(thread)
        finally:
            self._under_way.remove(thread)
        await self._let_others_run()
        result, thread.outcome = thread.outcome, None
        _idle.append(thread)
        return result.unwrap()

    def pause(self, operation: str) -> None:
        """Before an operation of the disk: in a worker thread, perhaps let the others run."""
        thread = self._current
        if thread is not None and self._rng.random() < self._pause_probability:
            thread.pause()

    def new_lock(self) -> _Lock:
        """What stands for `threading.Lock`."""
        return _Lock(self)

    def wait_for_another(self) -> None:
        """A lock is taken: in a thread give the baton back, on the event loop bring the other threads forward."""
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
        choice = self._rng.random()
        with trio.CancelScope(shield=True):
            if choice < 0.8:
                for _ in range(self._rng.randint(1, 3)):
                    await trio.lowlevel.checkpoint()
            else:
                await trio.sleep(self._rng.choice((0.001, 0.01, 0.1)))
