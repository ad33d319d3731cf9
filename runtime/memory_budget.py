"""What a node may hold in memory, and who waits for room."""

from __future__ import annotations

from collections import deque

import trio


class _Waiter:
    __slots__ = ("size_bytes", "task")

    def __init__(self, task: trio.lowlevel.Task, size_bytes: int) -> None:
        self.task = task
        self.size_bytes = size_bytes


class MemoryBudget:
    """What a node may hold in memory for requests under way; when it is spent, sockets are not read.

    Room means that less than the limit is charged: the request that crosses the limit is still let in, as
    with Kafka's `queued.max.request.bytes`, so that one larger than the whole budget cannot wait forever.
    Waiters are served first come, first served. A reader that knows a request's size reserves all of it
    before it reads the body: charging piece by piece could leave every connection with half a request and
    no room for the rest.
    """

    __slots__ = ("_used_bytes", "_waiters", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes <= 0:
            raise ValueError("a budget must be positive")
        self.limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiters: deque[_Waiter] = deque()

    @property
    def used_bytes(self) -> int:
        """What is charged now; it can exceed the limit by the requests that crossed it."""
        return self._used_bytes

    @property
    def has_room(self) -> bool:
        """Whether a reservation would be granted at once."""
        return self._used_bytes < self.limit_bytes and not self._waiters

    @property
    def waiting(self) -> int:
        """How many tasks wait for room."""
        return len(self._waiters)

    async def reserve(self, size_bytes: int) -> None:
        """Wait for room, then charge. A cancelled wait has charged nothing. Always a checkpoint."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.has_room:
            self._used_bytes += size_bytes
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        waiter = _Waiter(trio.lowlevel.current_task(), size_bytes)
        self._waiters.append(waiter)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._waiters.remove(waiter)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def wait_available(self) -> None:
        """Wait for room without charging; another task may take it before the caller charges."""
        await self.reserve(0)

    def charge(self, size_bytes: int) -> None:
        """Charge at once, whether or not there is room: for memory that is already held."""
        self._used_bytes += size_bytes

    def refund(self, size_bytes: int) -> None:
        """Give back what was charged, and let in those who wait."""
        if size_bytes > self._used_bytes:
            raise AssertionError("a memory budget was refunded more than was charged")
        self._used_bytes -= size_bytes
        while self._waiters and self._used_bytes < self.limit_bytes:
            waiter = self._waiters.popleft()
            self._used_bytes += waiter.size_bytes
            trio.lowlevel.reschedule(waiter.task)
