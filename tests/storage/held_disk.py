"""A real disk whose calls can be held, so that a test knows what else happens while one is under way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence

import trio

from ottla.storage.disk import Handle, RealDisk


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what a worker thread brings about; a test that waits for it in vain fails."""
    with trio.fail_after(10):
        while not is_so():  # noqa: ASYNC110 (nobody could set an event)
            await trio.sleep(0.001)


def exists(directory: str) -> bool:
    """Whether a store's folder is there."""
    return os.path.exists(directory)


def is_being_rewritten(directory: str) -> bool:
    """Whether a segment of a store is being written anew."""
    return any(name.endswith(".new") for name in os.listdir(directory))


class HeldDisk(RealDisk):
    """Holds the calls named in `held` in the worker thread that makes them, until `let_go`."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self._began = threading.Semaphore(0)
        self._may_go_on = threading.Event()

    def hold(self, *names: str) -> None:
        """Hold the next calls of these names."""
        self._may_go_on.clear()
        self.held.update(names)

    async def wait_until_held(self) -> None:
        """Return when a call is held."""
        assert await trio.to_thread.run_sync(lambda: self._began.acquire(timeout=120)), "no such call was made"

    def let_go(self) -> None:
        """Let all held calls go on, and hold no more."""
        self.held.clear()
        self._may_go_on.set()

    def _pass(self, name: str) -> None:
        if name in self.held and threading.current_thread() is not threading.main_thread():
            self._began.release()
            assert self._may_go_on.wait(120), "nobody let the call go on"

    def pwritev(self, handle: Handle, buffers: Iterable[memoryview | bytes], position: int) -> int:
        pieces = list(buffers)
        self._pass("pwritev")
        return super().pwritev(handle, pieces, position)

    def preadv(self, handle: Handle, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
        self._pass("preadv")
        return super().preadv(handle, buffers, position, nowait=nowait)

    def fdatasync(self, handle: Handle) -> None:
        self._pass("fdatasync")
        super().fdatasync(handle)

    def fsync_directory(self, path: str) -> None:
        self._pass("fsync_directory")
        super().fsync_directory(path)

    def unlink(self, path: str) -> None:
        self._pass("unlink")
        super().unlink(path)

    def listdir(self, path: str) -> list[str]:
        names = super().listdir(path)
        self._pass("listdir")
        return names
