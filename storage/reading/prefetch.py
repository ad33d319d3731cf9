"""Reading the next range into memory: while a client takes in one answer, what it will ask for next is read.

A client that reads a log from its files asks for the next range when it has received the last one, and a broker that
begins to read only then is idle before, and the client after. So when the bytes of a read have been sent that went
on where the read before it had ended, the range that follows is read: in the background, into pooled memory, as any
other read is. The next read takes it over. Where nobody comes for it, it is given back after a second; and all ranges
together are bounded, beyond which logs are read when they are asked for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import trio

from ottla.runtime.stages import Stages, finish
from ottla.storage.errors import StorageError
from ottla.storage.reading.plan import MOMENT_SECONDS, ReadableLog, ReadPlan
from ottla.storage.store.context import StorageContext

__all__ = ["Prefetch"]

# Of all ranges together, and of one: consumers ask for 1 MiB of a partition unless they are told otherwise.
_HELD_BYTES = 16 * 1_048_576
_RANGE_BYTES = 4 * 1_048_576
# The least that one counts for, so that there are not too many.
_LEAST_BYTES = 65_536


class _Ahead:
    """What was or will be read of a log unasked. `done` is there once reading has begun, and set when it has ended."""

    __slots__ = ("done", "layout_version", "plan", "until")

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan
        self.layout_version = plan.log.places.layout_version
        self.until = trio.current_time() + MOMENT_SECONDS
        self.done: trio.Event | None = None

    def begin(self, done: trio.Event) -> None:
        """It is being read, until the event."""
        self.done = done

    @property
    def held_bytes(self) -> int:
        return max(self.plan.max_bytes, _LEAST_BYTES)

    def fits(self, plan: ReadPlan) -> bool:
        """Whether it is what a plan would read. It is not if segments were exchanged, or the log was cleaned."""
        ahead = self.plan
        return (
            ahead.error is None
            and ahead.records is not None
            and 0 < ahead.records.size_bytes <= plan.max_bytes
            and ahead.next_offset <= plan.end_offset
            and (ahead.next_offset < ahead.end_offset or ahead.end_offset == plan.end_offset)
            and ahead.names_files == plan.names_files
            and ahead.is_current
            and plan.is_current
            and self.layout_version == plan.log.places.layout_version
        )


class Prefetch:
    """The ranges that were read before anybody asked, at most one of a log. A task of the log manager's reads them."""

    __slots__ = ("_aheads", "_context", "_fill", "_held_bytes", "_news", "_queue", "taken")

    def __init__(self, context: StorageContext, fill: Callable[[Sequence[ReadPlan]], Stages[None]]) -> None:
        self._context = context
        self._fill = fill
        self._aheads: dict[ReadableLog, _Ahead] = {}
        self._queue: deque[_Ahead] = deque()
        self._held_bytes = 0
        #: Set when there is something to read; None while there is no task.
        self._news: trio.Event | None = None
        #: How many reads found their range here.
        self.taken = 0

    def __len__(self) -> int:
        """How many ranges are kept or under way."""
        return len(self._aheads)

    def go_on(self, plan: ReadPlan) -> None:
        """Read what follows a plan, if its log is read in order and there is room."""
        log = plan.log
        if (
            not plan.goes_on
            or plan.max_bytes > _RANGE_BYTES
            or plan.next_offset >= plan.end_offset
            or log in self._aheads
            or self._held_bytes >= _HELD_BYTES
            or not self._context.is_running
        ):
            return
        try:
            ahead = log.plan_read(
                plan.next_offset,
                max_bytes=plan.max_bytes,
                end_offset=plan.end_offset,
                min_one_batch=False,
                names_files=plan.names_files,
            )
        except StorageError:
            return  # closed, or its records were deleted
        if ahead.records is not None:
            ahead.records.release()  # they are in memory anyway
            return
        found = self._aheads[log] = _Ahead(ahead)
        self._held_bytes += found.held_bytes
        self._queue.append(found)
        if self._news is None:
            self._news = trio.Event()
            self._context.spawn(self._work)
        self._news.set()

    def take(self, plan: ReadPlan) -> Stages[None]:
        """Complete a plan by what was read ahead for it, if there is such a thing; waits for it if it is being read."""
        found = self._aheads.get(plan.log)
        if found is None or found.plan.offset != plan.offset:
            return
        if found.done is not None:
            yield found.done.wait
        if self._aheads.get(plan.log) is not found:
            return
        if found.done is not None and found.fits(plan):
            ahead = found.plan
            # As if it had been read just now.
            places = plan.log.places
            places.was_read(plan.offset, places.last_read[1])
            plan.complete_from_files(ahead.hand_over(), ahead.next_offset, ahead.read_bytes)
            self.taken += 1
        self._drop(found)

    def forget(self, log: ReadableLog) -> None:
        """What the log's files hold is no longer true, or not wanted."""
        found = self._aheads.get(log)
        if found is not None:
            self._drop(found)

    def _drop(self, found: _Ahead) -> None:
        """Give its memory back; of one that is being read, `_read` does."""
        del self._aheads[found.plan.log]
        self._held_bytes -= found.held_bytes
        if found.done is None:
            self._queue.remove(found)
        elif found.done.is_set() and found.plan.records is not None:
            found.plan.records.release()

    async def _work(self) -> None:
        """Read what is queued, and end when for a while nobody has wanted anything."""
        try:
            while self._aheads:
                assert self._news is not None
                with trio.move_on_after(MOMENT_SECONDS):
                    await self._news.wait()
                self._news = trio.Event()
                if self._queue:
                    await self._read()
                self._drop_until(trio.current_time())
        finally:
            self._news = None
            self._drop_until(math.inf)

    async def _read(self) -> None:
        batch = list(self._queue)
        self._queue.clear()
        done = trio.Event()
        for found in batch:
            found.begin(done)
        try:
            await finish(self._fill([found.plan for found in batch]))
        finally:
            done.set()
            for found in batch:
                if self._aheads.get(found.plan.log) is not found and found.plan.records is not None:
                    found.plan.records.release()

    def _drop_until(self, time: float) -> None:
        """Drop those that nobody wanted; the oldest stand first."""
        while self._aheads:
            oldest = next(iter(self._aheads.values()))
            if oldest.until > time:
                return
            self._drop(oldest)
