"""Windows: runs of one partition that lie next to each other in one part, and are fetched together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto.records.crc import crc32c
from ottla.tiers.errors import CorruptObjectError

if TYPE_CHECKING:
    from ottla.tiers.object_store import Content
    from ottla.tiers.partition_index import PartitionIndex, Run

__all__ = ["Window", "WindowedIndex", "require_runs"]

_WINDOW_BYTES: Final = 4 * 1_048_576


class Window(NamedTuple):
    """Runs that are fetched together."""

    first: int
    runs: tuple[Run, ...]

    @property
    def position(self) -> int:
        return self.runs[0].position

    @property
    def length(self) -> int:
        return self.runs[-1].end_position - self.runs[0].position

    @property
    def last_offset(self) -> int:
        return self.runs[-1].last_offset


class WindowedIndex(NamedTuple):
    """An index, and the places of the runs that begin a window."""

    partition_index: PartitionIndex
    firsts: Sequence[int]

    @classmethod
    def of(cls, index: PartitionIndex) -> WindowedIndex:
        """The windows of an index. Blocks."""
        return cls(index, list(_firsts_of(index)))

    def window_at(self, place: int) -> Window:
        """The window that has a run."""
        which = bisect_right(self.firsts, place) - 1
        end = self.firsts[which + 1] if which + 1 < len(self.firsts) else len(self.partition_index)
        first = self.firsts[which]
        return Window(first, tuple(self.partition_index[number] for number in range(first, end)))


def require_runs(name: str, content: Content, window: Window) -> None:
    """Raise CorruptObjectError unless the content is that of the window's runs. Blocks."""
    if len(content) != window.length:
        raise CorruptObjectError(f"{name} has {len(content)} bytes at {window.position} instead of {window.length}")
    view = memoryview(content)
    for run in window.runs:
        start = run.position - window.position
        if crc32c(view, start, start + run.length) != run.crc:
            raise CorruptObjectError(f"{name} is not what was uploaded at {run.position}")


def _firsts_of(index: PartitionIndex) -> Iterator[int]:
    """The first run of each part begins a window, and each that would make it too long. Blocks."""
    part = position = -1
    for place, run in enumerate(index):
        if run.part != part or run.end_position - position > _WINDOW_BYTES:
            part, position = run.part, run.position
            yield place
