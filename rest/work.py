"""Work that may take long, and the memory of requests meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from ottla.rest.errors import RestError
from ottla.rest.limits import MAX_HELD_BYTES, SMALL_BYTES, THREADS
from ottla.rest.worked_time import in_thread

T = TypeVar("T")


class Work:
    """Bounds both."""

    def __init__(self, max_held_bytes: int = MAX_HELD_BYTES) -> None:
        self._threads = trio.CapacityLimiter(THREADS)
        self._max_held_bytes = max_held_bytes
        self._held_bytes = 0

    async def do(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Do work on so many bytes: in a worker thread, unless it is little."""
        if size_bytes <= SMALL_BYTES:
            return work()
        return await trio.to_thread.run_sync(in_thread(work), limiter=self._threads)

    @contextmanager
    def holding(self) -> Iterator[Held]:
        """One request's share of the memory, until the end of a block."""
        held = Held(self)
        try:
            yield held
        finally:
            held.change(-held.size_bytes)

    def take(self, size_bytes: int) -> None:
        """Count what a request holds more, or less. RestError 429 if it is too much for all."""
        if size_bytes > 0 and self._held_bytes + size_bytes > self._max_held_bytes:
            raise RestError(429, "Too many records are on their way at the moment: ask again", {"retry-after": "1"})
        self._held_bytes += size_bytes


class Held:
    """The memory of one request."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.size_bytes = 0

    def change(self, by_bytes: int) -> None:
        """Hold more or less. RestError 429 if there is no more for anybody."""
        self._work.take(by_bytes)
        self.size_bytes += by_bytes
