"""Reading ahead: while a response is being sent, the range that follows it is already on its way from the device.

A log that is read from files in order is followed: the places of the runs that come next are looked up, and the page
cache is asked for them, in one worker-thread call for all partitions of a fetch. The next read then finds them there:
it neither waits for the device nor looks into an index, and so needs no thread. The memory is the page cache, which
the kernel bounds and takes back where nobody comes for it; here only places are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from functools import partial

import trio

from ottla.runtime.stages import Stages
from ottla.storage.errors import StorageError
from ottla.storage.reading.extents import Extent, spans_from, unsealed_extents
from ottla.storage.reading.file_read import FileRead
from ottla.storage.reading.plan import ReadableLog, ReadPlan
from ottla.storage.store.context import StorageContext

__all__ = ["ReadAhead"]

_FOLLOWED_LOGS = 1024
# Some 400 bytes each.
_KNOWN_EXTENTS = 65_536
_AHEAD_BYTES = 4 * 1_048_576
# For how many reads a look is; and where the page cache has the log, so that only places are looked up.
_READS = 4
_CACHED_READS = 16


class _Followed:
    """A log that is read in order: the next read begins at `offset`, the first of `extents` may begin before.

    `looking` is set when the look that is under way has ended. While the log `is_cached` nothing has to be asked for.
    """

    __slots__ = ("extents", "is_cached", "layout_version", "log", "looking", "offset")

    def __init__(self, log: ReadableLog, offset: int) -> None:
        self.log = log
        self.offset = offset
        self.layout_version = log.places.layout_version
        self.extents: list[Extent] = []
        self.looking: trio.Event | None = None
        self.is_cached = False

    @property
    def is_true(self) -> bool:
        """Whether the places still are where the log's data is."""
        return self.layout_version == self.log.places.layout_version and not self.log.is_closed

    @property
    def end_offset(self) -> int:
        """Where the places that are not known begin."""
        return self.extents[-1].entry.last_offset + 1 if self.extents else self.offset

    def known_bytes(self) -> int:
        return sum(extent.entry.length for extent in self.extents)

    def found(self, extents: list[Extent], *, are_cached: bool) -> int:
        """These follow the known ones. Meanwhile the reader may have gone on; returns how many are of use to it."""
        self.is_cached = are_cached
        new = [extent for extent in extents if extent.entry.last_offset >= self.offset]
        self.extents += new
        return len(new)

    def go_on(self, offset: int, *, was_cold: bool) -> int:
        """A read has ended at an offset; returns how many runs are done with."""
        self.offset = offset
        self.is_cached = self.is_cached and not was_cold
        done = 0
        while done < len(self.extents) and self.extents[done].entry.last_offset < offset:
            done += 1
        del self.extents[:done]
        return done


class ReadAhead:
    """The logs that are followed: the latest 1,024 of them, and as many as have 65,536 known places together."""

    __slots__ = ("_context", "_extent_count", "_followed")

    def __init__(self, context: StorageContext) -> None:
        self._context = context
        self._extent_count = 0
        self._followed: OrderedDict[ReadableLog, _Followed] = OrderedDict()

    def __len__(self) -> int:
        """How many logs are followed."""
        return len(self._followed)

    def settle(self, plans: Iterable[ReadPlan]) -> Stages[None]:
        """Wait for the looks that are under way where these reads go on, and that they need."""
        for plan in plans:
            followed = self._followed.get(plan.log)
            if followed is None or followed.offset != plan.offset or followed.looking is None:
                continue
            if followed.known_bytes() < plan.max_bytes:
                yield followed.looking.wait

    def extents_for(self, plan: ReadPlan) -> list[Extent]:
        """The runs that a read needs, if they were looked up."""
        followed = self._followed.get(plan.log)
        return followed.extents if followed is not None and followed.offset == plan.offset and followed.is_true else []

    def on_read(self, plan: ReadPlan, *, was_cold: bool) -> bool:
        """A read of files has ended; True if it is time to look further ahead: less than two more reads are known.

        A look is for several, so that not every read asks for one.
        """
        log = plan.log
        followed = self._followed.get(log)
        if log.is_closed or plan.next_offset >= min(plan.end_offset, log.flushed_end_offset):
            self.forget(log)
            return False
        if followed is None or followed.offset != plan.offset or not followed.is_true:
            if was_cold:
                self.forget(log)
                self._followed[log] = _Followed(log, plan.next_offset)
                self._evict()
            return False
        self._followed.move_to_end(log)
        self._extent_count -= followed.go_on(plan.next_offset, was_cold=was_cold)
        return followed.looking is None and followed.known_bytes() < 2 * min(plan.max_bytes, _AHEAD_BYTES)

    def forget(self, log: ReadableLog) -> None:
        """What was known of a log is no longer true, or of no use."""
        followed = self._followed.pop(log, None)
        if followed is not None:
            self._extent_count -= len(followed.extents)

    def _evict(self) -> None:
        """Forget those that were not read for the longest time, down to the bounds."""
        while len(self._followed) > _FOLLOWED_LOGS or self._extent_count > _KNOWN_EXTENTS:
            self.forget(next(iter(self._followed)))

    def look(self, plans: Iterable[ReadPlan]) -> None:
        """Look further ahead in these plans' logs, in the background."""
        jobs: list[tuple[_Followed, int]] = []
        for plan in plans:
            followed = self._followed.get(plan.log)
            if followed is None:
                continue  # displaced by other logs of the same fetch
            followed.looking = trio.Event()
            reads = _CACHED_READS if followed.is_cached else _READS
            jobs.append((followed, reads * min(plan.max_bytes, _AHEAD_BYTES) - followed.known_bytes()))
        self._context.spawn(partial(self._look, jobs))

    async def _look(self, jobs: list[tuple[_Followed, int]]) -> None:
        works: list[FileRead] = []
        try:
            for followed, ahead_bytes in jobs:
                log, offset = followed.log, followed.end_offset
                work = FileRead(
                    self._context, log.store.files, offset, log.flushed_end_offset, ahead_bytes, min_one_batch=False
                )
                works.append(work)
                # A segment may just have been sealed: its runs are no longer in memory, and its span is not known yet.
                if followed.is_true and log.places.are_known_from(offset):
                    _prepare(work, log, offset, ahead_bytes)
            found = await self._context.offload(_look_at, works)
            for (followed, _), (extents, are_cached) in zip(jobs, found, strict=True):
                if self._followed.get(followed.log) is followed:
                    self._extent_count += followed.found(extents, are_cached=are_cached)
            self._evict()
        except (OSError, StorageError):
            # A read that comes to this place will meet it again, and tell its client.
            for followed, _ in jobs:
                self.forget(followed.log)
        finally:
            for work in works:
                work.close()
            for followed, _ in jobs:
                assert followed.looking is not None
                followed.looking.set()
                followed.looking = None


def _prepare(work: FileRead, log: ReadableLog, offset: int, ahead_bytes: int) -> None:
    end_offset = log.flushed_end_offset
    spans, wanted = spans_from(log.places, offset, end_offset, ahead_bytes)
    work.add_spans(spans)
    for extent in unsealed_extents(log.places, offset, end_offset, wanted):
        work.add_extent(extent)


def _look_at(works: list[FileRead]) -> list[tuple[list[Extent], bool]]:
    """Find the runs and ask for them; also whether the page cache has all of them. Blocks."""
    found = []
    for work in works:
        extents = work.find_extents()
        found.append((extents, work.read_ahead(extents)))
    return found
