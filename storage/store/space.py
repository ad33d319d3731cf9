"""Room on the disk: a node whose disk is full serves what it has, accepts nothing, and recovers by itself.

See docs/decisions/0019. The rules:

- The first write that finds no room makes the node full. From then on clients' appends are refused at once, by all
  stores, so that what room there is serves to make more.
- A file is kept in reserve, and is given up for what makes room or must not fail: metadata, new log starts, deletions.
- While the node is full the disk is asked once a second. When there is room for the reserve and for what waits, the
  reserve is made again, and the stores write on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final, Protocol

import trio

from ottla.storage.disk.disk import Disk
from ottla.storage.disk.passing import is_full
from ottla.storage.worker_threads import WorkerThreads

__all__ = ["Space", "SpaceUser"]

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 1.0
_START_SECONDS: Final = 1.0
_PIECE_BYTES: Final = 1_048_576
_MARGIN_BYTES: Final = 1_048_576


class SpaceUser(Protocol):
    """A writer, which is told whether there is room."""

    def stall(self) -> None:
        """The disk is full: refuse what is offered."""

    def resume(self) -> None:
        """There is room again: try what waits."""


class Space:
    """The room that a node has on its disk. The log manager owns it, and runs it."""

    __slots__ = (
        "_disk",
        "_filled",
        "_first",
        "_lock",
        "_needed_bytes",
        "_path",
        "_reserve_bytes",
        "_room",
        "_threads",
        "_users",
        "full_since",
    )

    def __init__(self, disk: Disk, reserve_path: str, reserve_bytes: int, threads: WorkerThreads) -> None:
        self._disk = disk
        self._path = reserve_path
        self._reserve_bytes = reserve_bytes
        self._threads = threads
        # Who looks for room or makes it holds it: a reserve that another gives up meanwhile would look like room.
        self._lock = trio.Lock()
        # In their order, so that a simulation tells them in the same order each time.
        self._users: dict[SpaceUser, None] = {}
        self._first: list[Callable[[], None]] = []
        self._filled = trio.Event()
        self._room = trio.Event()
        self._needed_bytes = 0
        #: By the event loop's clock; None while there is room.
        self.full_since: float | None = None

    @property
    def is_full(self) -> bool:
        return self.full_since is not None

    def add(self, user: SpaceUser) -> None:
        """Tell this one from now on."""
        self._users[user] = None
        if self.is_full:
            user.stall()

    def remove(self, user: SpaceUser) -> None:
        """It writes no more."""
        self._users.pop(user, None)

    def require(self, reason: object, write: Callable[[], None]) -> None:
        """There is no room for a write that has to come before all others: accept nothing until it is done.

        It is called in a thread, and again while it raises OSError.
        """
        self._first.append(write)
        self.filled(reason)

    def filled(self, reason: object, needed_bytes: int = 0) -> None:
        """A write has found no room for so many bytes; the reason is for the log."""
        self._needed_bytes = max(self._needed_bytes, needed_bytes)
        if self.is_full:
            return
        self.full_since = trio.current_time()
        self._filled.set()
        logger.error(
            "the disk is full: nothing is appended until there is room. Delete topics, lower retention or free space: "
            "%s",
            reason,
            extra={"path": os.path.dirname(self._path), "error": str(reason)},
        )
        for user in list(self._users):
            user.stall()

    async def find_room(self, needed_bytes: int) -> bool:
        """Whether there is room for what gives back more, on a full disk; the reserve is given up if that makes it so.

        Of the room that is left so much is kept that log starts and lists of segments can still be written.
        """
        assert self.is_full
        async with self._lock:
            return bool(await self._threads.offload(lambda: self._find_room(needed_bytes + _MARGIN_BYTES)))

    def _find_room(self, needed_bytes: int) -> bool:
        folder = os.path.dirname(self._path)
        missing_bytes = needed_bytes - self._disk.free_bytes(folder)
        if missing_bytes <= 0:
            return True
        if not self._reserve_bytes or missing_bytes > self._reserve_bytes:
            return False
        return self._give_up_reserve() and self._disk.free_bytes(folder) >= needed_bytes

    def _give_up_reserve(self) -> bool:
        """Make the reserve's room free; False if there is none. Blocks."""
        try:
            if not self._reserve_bytes or not self._disk.exists(self._path):
                return False
            self._disk.unlink(self._path)
        except OSError as error:
            logger.warning("%s cannot be removed: %s", self._path, error, extra={"path": self._path})
            return False
        return True

    async def until_full(self) -> None:
        """Return when the node is full."""
        await self._filled.wait()

    async def make_room(self, *, if_full: bool = False) -> bool:
        """Give up the reserve for what must not fail; False if it is gone already. The node counts as full then.

        With `if_full` it is kept if there is room by the time that it is this caller's turn.
        """
        async with self._lock:
            if if_full and not self.is_full:
                return False
            given_up = bool(await self._threads.offload(self._give_up_reserve))
            if given_up:
                self.filled("the reserve was given up")
            return given_up

    async def until_room(self) -> None:
        """Return when the node is not full."""
        while self.is_full:
            await self._room.wait()

    async def run(self) -> None:
        """Keep the reserve, and watch for room while there is none. Forever, until cancelled."""
        if self._reserve_bytes:
            # Making the reserve is not part of the start.
            if not self.is_full and await self._threads.offload(self._has_room):
                await trio.sleep(_START_SECONDS)
            async with self._lock:
                if not await self._threads.offload(self._restore):
                    self.filled("there is no room for the reserve")
        while True:
            await self._filled.wait()
            while not await self._resume():  # noqa: ASYNC110 (nobody tells of room)
                await trio.sleep(_POLL_SECONDS)

    async def _resume(self) -> bool:
        """Let the stores write on if there is room for it, with the reserve."""
        async with self._lock:
            if not await self._threads.offload(self._restore):
                return False
            self._filled = trio.Event()
            self.full_since, self._needed_bytes = None, 0
            logger.warning("there is room on the disk again: records are accepted", extra={"path": self._path})
            room, self._room = self._room, trio.Event()
            room.set()
            for user in list(self._users):
                user.resume()
            return True

    @property
    def _has_reserve(self) -> bool:
        return not self._reserve_bytes or self._disk.exists(self._path)

    def _has_room(self) -> bool:
        """Whether there is room for what waits, and for the reserve where there is none. Blocks."""
        missing_bytes = 0 if self._has_reserve else self._reserve_bytes
        wanted_bytes = missing_bytes + max(2 * self._needed_bytes, _MARGIN_BYTES)
        return self._disk.free_bytes(os.path.dirname(self._path)) >= wanted_bytes

    def _restore(self) -> bool:
        """Whether there is room again, with the reserve, which is made where it is missing. Blocks."""
        try:
            if not self._has_room():
                return False
            if not self._has_reserve:
                self._make_reserve()
            while self._first:
                self._first[0]()
                del self._first[0]
        except OSError as error:
            if not is_full(error):
                folder = os.path.dirname(self._path)
                logger.warning("%s cannot be written to: %s", folder, error, extra={"path": folder})
            return False
        return True

    def _make_reserve(self) -> None:
        """Zeros that are really written: a file with a hole keeps nothing."""
        beside = self._path + ".tmp"
        if self._disk.exists(beside):
            self._disk.unlink(beside)
        handle = self._disk.create(beside)
        try:
            zeros = bytes(_PIECE_BYTES)
            for position in range(0, self._reserve_bytes, _PIECE_BYTES):
                self._disk.pwritev(handle, [zeros[: self._reserve_bytes - position]], position)
        except BaseException:
            self._disk.unlink(beside)
            raise
        finally:
            self._disk.close(handle)
        self._disk.rename(beside, self._path)
