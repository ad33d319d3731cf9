"""The room on disk: a ring of files without names.

A file loses its name as soon as it is created. So a killed proxy leaves nothing behind, and the next start has nothing
to trust or to clean up. Space is allocated in the newest file; when all of it is used, the oldest file goes, with
everything in it. A reader keeps the file open until it is done.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.storage.disk.disk import Disk, Handle

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAST_SEGMENTS: Final = 16
_MAX_SEGMENTS: Final = 64
_MAX_SEGMENT_BYTES: Final = 256 * 1024 * 1024
_MAX_PLACES: Final = 1024
"""How many places are allocated in one file, whatever their size: as many as can be forgotten at once."""


class Segment:
    """One file. `on_drop` is called when it goes."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.used_bytes = 0
        self.places = 0
        self.users = 0
        self.is_dropped = False
        self.on_drop: set[Callable[[], None]] = set()


class Place(NamedTuple):
    """A part of a file."""

    segment: Segment
    position: int
    size_bytes: int


class Segments:
    """All files of a cache of `size_bytes`. Everything but `write` and `sweep` is called on the loop, and is brief."""

    def __init__(self, disk: Disk, folder: str, size_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._segment_bytes = max(1, min(size_bytes // _LEAST_SEGMENTS, _MAX_SEGMENT_BYTES))
        self._max_bytes = size_bytes
        self._segments: deque[Segment] = deque()
        self._unused: list[Segment] = []
        self._number = 0
        self.used_bytes = 0

    @property
    def largest_bytes(self) -> int:
        """The largest place that can be allocated."""
        return self._segment_bytes

    def reserve(self, size_bytes: int) -> Place:
        """Allocate room for this much; if there is none, the oldest file goes. Raises OSError if no file can be
        created.

        Its file is kept open until `leave`.
        """
        assert 0 < size_bytes <= self._segment_bytes
        while self._segments and self.used_bytes + size_bytes > self._max_bytes:
            self.drop_oldest()
        newest = self._segments[-1] if self._segments else None
        if newest is None or newest.places == _MAX_PLACES or newest.used_bytes + size_bytes > self._segment_bytes:
            if len(self._segments) == _MAX_SEGMENTS:
                self.drop_oldest()
            newest = Segment(self._create())
            self._segments.append(newest)
        place = Place(newest, newest.used_bytes, size_bytes)
        newest.places += 1
        newest.used_bytes += size_bytes
        self.used_bytes += size_bytes
        newest.users += 1
        return place

    def enter(self, segment: Segment) -> None:
        """Keep it open until `leave`."""
        segment.users += 1

    def leave(self, segment: Segment) -> None:
        """A reader or writer is done."""
        segment.users -= 1
        self._let_go(segment)

    def drop_oldest(self) -> None:
        """Forget the oldest file, and all that is in it."""
        segment = self._segments.popleft()
        self.used_bytes -= segment.used_bytes
        segment.is_dropped = True
        for forget in segment.on_drop:
            forget()
        segment.on_drop.clear()
        self._let_go(segment)

    def drop_all(self) -> None:
        """Forget everything."""
        while self._segments:
            self.drop_oldest()

    def write(self, place: Place, data: memoryview) -> None:
        """Fill a place; from a worker thread. Raises OSError if that fails."""
        self._disk.pwritev(place.segment.handle, [data], place.position)

    def read(self, place: Place, room: memoryview, *, nowait: bool) -> int:
        """Read from the start of a place; with `nowait` only what is in memory."""
        return self._disk.preadv(place.segment.handle, [room], place.position, nowait=nowait)

    def sweep(self) -> None:
        """Close files that nobody uses any more, which frees their space on disk; from a worker thread, or several."""
        while True:
            try:
                segment = self._unused.pop()
            except IndexError:
                return
            self._disk.close(segment.handle)

    def _let_go(self, segment: Segment) -> None:
        if segment.is_dropped and not segment.users:
            self._unused.append(segment)

    def _create(self) -> Handle:
        self._number += 1
        path = os.path.join(self._folder, f"ottla-cache-{os.getpid()}-{id(self)}-{self._number}")
        handle = self._disk.create(path)
        self._disk.unlink(path)
        return handle
