"""A limit in bytes a second for all tasks together that share it."""

from __future__ import annotations

import trio

__all__ = ["ByteRate"]


class ByteRate:
    """Each taker waits until what was taken before it has been paid for. A rate of 0 is no limit.

    After a pause, up to a second's worth is there at once. Time is the event loop's.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._paid_until = 0.0

    def change(self, bytes_per_second: int) -> None:
        """Change the rate; it counts from the next call of `take` on."""
        self._bytes_per_second = bytes_per_second

    async def take(self, size_bytes: int) -> None:
        """Return when this many bytes may be sent."""
        if self._bytes_per_second <= 0:
            await trio.lowlevel.checkpoint()
            return
        now = trio.current_time()
        began = max(self._paid_until, now - 1.0)
        self._paid_until = began + size_bytes / self._bytes_per_second
        await trio.sleep(max(0.0, began - now))
