"""The memory that forwarding takes: chunks that are lent out while bytes move, and a bound on frames held whole."""

from __future__ import annotations

from typing import Final

import trio

CHUNK_BYTES: Final = 256 * 1024
"""One receive copies at memory speed: this much stays well under the 500 µs for which the loop may be held."""

_MAX_FREE: Final = 16


class Chunks:
    """Buffers for what is on its way. A connection has one only while something of it is here."""

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


class FrameBudget:
    """How many bytes of large frames may be held whole, by all connections together. Who comes first gets first.

    One frame that is larger than all of it is let in when nothing else is held.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._turn = trio.StrictFIFOLock()
        self._freed = trio.Event()
        self.used_bytes = 0

    async def take(self, size_bytes: int) -> None:
        """Wait until so much may be held; to be given back."""
        async with self._turn:
            while self.used_bytes and self.used_bytes + size_bytes > self._max_bytes:
                await self._freed.wait()
            self.used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        assert self.used_bytes >= size_bytes
        self.used_bytes -= size_bytes
        self._freed.set()
        self._freed = trio.Event()
