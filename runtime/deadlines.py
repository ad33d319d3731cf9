"""Many waiters with a deadline each, few of whom wait until it: one timer for all instead of one for each."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Protocol

import trio

#: How many deadlines of waiters that have left are kept before the others are sorted again.
_SLACK: Final = 64


class Late(Protocol):
    """A waiter, which `Deadlines` expires when its time is up."""

    def expire(self) -> None: ...


class Deadlines:
    """Expires each waiter when its deadline has passed, unless it has left by then.

    `add` and `leave` cost a push onto a heap, where a scope of its own would cost a waiter some 7 µs of CPU. The timer
    is a system task of Trio that runs while there are deadlines; it only sleeps and expires. What is kept is
    bounded by twice the number of waiters.
    """

    __slots__ = ("_alarm", "_heap", "_left", "_order")

    def __init__(self) -> None:
        # A cell is emptied when its waiter leaves.
        self._heap: list[tuple[float, int, list[Late]]] = []
        self._left = 0
        self._order = count()
        self._alarm: trio.CancelScope | None = None

    def __len__(self) -> int:
        """How many deadlines are kept, including those of waiters that have left."""
        return len(self._heap)

    def add(self, waiter: Late, deadline: float) -> list[Late]:
        """Tell `waiter` at `deadline` (of Trio's clock); returns what to `leave` with."""
        cell = [waiter]
        heappush(self._heap, (deadline, next(self._order), cell))
        if self._alarm is None:
            self._alarm = trio.CancelScope(deadline=deadline)
            trio.lowlevel.spawn_system_task(self._run)
        elif deadline < self._alarm.deadline:
            self._alarm.deadline = deadline
        return cell

    def leave(self, cell: list[Late]) -> None:
        """The waiter no longer waits; may be called after its deadline."""
        if cell:
            cell.clear()
            self._left += 1
            if self._left > _SLACK and self._left * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2]]
                heapify(self._heap)
                self._left = 0

    async def _run(self) -> None:
        try:
            while self._alarm is not None:
                with self._alarm:
                    await trio.sleep_forever()
                self._expire_due(trio.current_time())
                self._alarm = trio.CancelScope(deadline=self._heap[0][0]) if self._heap else None
        finally:
            self._alarm = None

    def _expire_due(self, now: float) -> None:
        """Expire the waiters whose time is up, and forget those that have left."""
        heap = self._heap
        while heap and (heap[0][0] <= now or not heap[0][2]):
            cell = heappop(heap)[2]
            if cell:
                cell.pop().expire()
            else:
                self._left -= 1
