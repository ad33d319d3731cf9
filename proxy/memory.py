"""The memory for forwarding: chunks that are lent out while bytes move, and a limit on frames that are held whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from ottla.proxy.errors import StalledError

CHUNK_BYTES: Final = 256 * 1024
"""One receive copies at memory speed; this much is well under the 500 µs for which the loop may be held."""

_MAX_FREE: Final = 16


class Chunks:
    """Buffers for bytes on their way. A connection has one only while some of its bytes are here."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self.lent = 0

    def take(self) -> bytearray:
        self.lent += 1
        return self._free.pop() if self._free else bytearray(CHUNK_BYTES)

    def give(self, chunk: bytearray) -> None:
        self.lent -= 1
        if len(self._free) < _MAX_FREE:
            self._free.append(chunk)


class Held:
    """A frame that is held whole. Its owner reports whenever part of it moves, and does everything with it within
    `scope`.
    """

    __slots__ = ("moved_at", "scope")

    def __init__(self) -> None:
        self.moved_at = trio.current_time()
        self.scope = trio.CancelScope()

    def moved(self) -> None:
        """A part of it has arrived, or has been sent on."""
        self.moved_at = trio.current_time()


class FrameBudget:
    """How many bytes of large frames all connections together may hold. First come, first served.

    A frame larger than the whole limit is let in when nothing else is held. A frame of which nothing has moved for
    `patience_seconds` is given up if others wait for its memory, so a client that does not read cannot hold up others
    for long.
    """

    def __init__(self, max_bytes: int, patience_seconds: float = 30.0) -> None:
        self._max_bytes = max_bytes
        self._patience_seconds = patience_seconds
        self._turn = trio.StrictFIFOLock()
        self._freed = trio.Event()
        self._frames: set[Held] = set()
        self.used_bytes = 0

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[Held]:
        """Wait until this much may be held, and hold it during the block. Raises StalledError."""
        async with self._turn:
            while self.used_bytes and self.used_bytes + size_bytes > self._max_bytes:
                with trio.move_on_after(self._patience_seconds):
                    await self._freed.wait()
                    continue
                self._give_up_stalled()
            self.used_bytes += size_bytes
        held = Held()
        self._frames.add(held)
        try:
            with held.scope:
                yield held
        finally:
            self._frames.discard(held)
            self.used_bytes -= size_bytes
            self._freed.set()
            self._freed = trio.Event()
        if held.scope.cancelled_caught:
            raise StalledError(
                f"nothing of a frame of {size_bytes} bytes moved for {self._patience_seconds:g} s, and others waited "
                "for its memory"
            )

    def _give_up_stalled(self) -> None:
        latest = trio.current_time() - self._patience_seconds
        for held in self._frames:
            if held.moved_at <= latest:
                held.scope.cancel()
