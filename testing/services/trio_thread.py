"""A program on Trio in a thread of this process, beside whatever the test runs."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import trio

S = TypeVar("S")
T = TypeVar("T")

_START_SECONDS: Final = 30.0
_CALL_SECONDS: Final = 30.0


class TrioThread(Generic[S]):
    """Runs `program(task_status=…)` until `close`. What keeps it from starting is raised here."""

    def __init__(self, name: str, program: Callable[..., Awaitable[None]]) -> None:
        self._program = program
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken
        started: Future[S] = Future()
        self._thread = threading.Thread(target=self._run, args=[started], name=f"ottla {name}", daemon=True)
        self._thread.start()
        #: What the program has started with.
        self.started: S = started.result(_START_SECONDS)

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the thread, for half a minute at most, and return its result."""

        async def bounded() -> T:
            with trio.fail_after(_CALL_SECONDS):
                return await function()

        return trio.from_thread.run(bounded, trio_token=self._token)

    def close(self) -> None:
        """End the program, and wait until it has ended."""
        if self._thread.is_alive():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._scope.cancel)
            self._thread.join()

    # In the thread.

    def _run(self, started: Future[S]) -> None:
        try:
            trio.run(self._main, started, strict_exception_groups=True)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it
            if not started.done():
                started.set_exception(error)

    async def _main(self, started: Future[S]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                found: Any = await nursery.start(self._program)
                started.set_result(found)
