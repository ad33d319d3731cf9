"""Which offsets a lost segment had, where its index is gone as well: those that no other segment has.

They are written as its index, as runs that lie in the file which is not there. So a reader comes upon them in their
place and is refused, and what is said of segments holds for this one too. Where compaction had removed records of just
these offsets, more is called lost than is; nothing is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.storage.config import INT64_MAX
from ottla.storage.format.run_table import RunTable
from ottla.storage.format.segment_header import SEGMENT_HEADER_BYTES
from ottla.storage.store.index_files import load_index, rebuild_tables, write_sealed_index
from ottla.storage.store.segment_files import indexed_bytes

if TYPE_CHECKING:
    from ottla.storage.disk import Disk
    from ottla.storage.store.segment import Segment

__all__ = ["index_lost_segments"]


class _Part:
    """A partition's part of one segment: its offsets, and to what it was truncated while the segment was written."""

    __slots__ = ("base_offset", "last_offset", "truncated_to")

    def __init__(self, base_offset: int, last_offset: int, truncated_to: int) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.truncated_to = truncated_to


def index_lost_segments(
    disk: Disk, segments: Sequence[Segment], bounds_of_all: Callable[[], Mapping[bytes, tuple[int, int]]]
) -> None:
    """Give each lost segment without a sound index one. `bounds_of_all` tells every log's start and end offset, and is
    asked if there is such a segment. Blocks.

    An index of part of a file is as good as none, as it does not say what else there was.
    """
    hollow = {segment for segment in segments if segment.is_lost and not _has_index(disk, segment)}
    if not hollow:
        return
    bounds = bounds_of_all()
    ends = {key: start for key, (start, _) in bounds.items()}
    for place, segment in enumerate(segments):
        if segment in hollow:
            newer = segments[place + 1 :]
            following = _first_offsets(disk, [each for each in newer if each not in hollow], bounds)
            _write_index(disk, segment, ends, following)
        for key, part in _parts(disk, segment).items():
            end = min(ends.get(key, 0), part.truncated_to)
            ends[key] = max(end, part.last_offset + 1)


def _has_index(disk: Disk, segment: Segment) -> bool:
    return indexed_bytes(disk, segment) == segment.size_bytes


def _first_offsets(disk: Disk, newer: Sequence[Segment], bounds: Mapping[bytes, tuple[int, int]]) -> dict[bytes, int]:
    """Of each log the first offset that these segments have, or its end."""
    found: dict[bytes, int] = {}
    for segment in newer:
        for key, part in _parts(disk, segment).items():
            if part.base_offset >= 0:
                found.setdefault(key, part.base_offset)
    return {key: found.get(key, end) for key, (_, end) in bounds.items()}


def _parts(disk: Disk, segment: Segment) -> dict[bytes, _Part]:
    """What a segment has, by log; a base offset of -1 where it has nothing but a truncation."""
    if segment.tables is not None:
        return {
            key: _Part(table.base_offset, table.last_offset, table.truncated_to)
            if len(table)
            else _Part(-1, -1, table.truncated_to)
            for key, table in segment.tables.items()
        }
    found: dict[bytes, _Part] = {}
    for page in load_index(disk, segment).all_pages():
        part = found.get(page.key)
        if part is None:
            found[page.key] = (
                _Part(page.base_offset, page.last_offset, page.truncated_to)
                if page.entry_count
                else _Part(-1, -1, page.truncated_to)
            )
        else:
            part.last_offset = page.last_offset
            part.truncated_to = min(part.truncated_to, page.truncated_to)
    return found


def _write_index(disk: Disk, segment: Segment, ends: Mapping[bytes, int], following: Mapping[bytes, int]) -> None:
    tables: dict[bytes, RunTable] = {}
    position = SEGMENT_HEADER_BYTES
    if disk.exists(segment.data_path):
        handle = disk.open_read(segment.data_path)
        try:
            position = max(position, disk.size(handle))
        finally:
            disk.close(handle)
        tables = rebuild_tables(disk, segment)
    for key, first in following.items():
        table = tables.setdefault(key, RunTable())
        end = min(ends.get(key, 0), table.truncated_to)
        begin = max(end, table.last_offset + 1 if len(table) else 0)
        if begin < first:
            table.append(-1, begin, first - 1, -1, position, 1, 0)
    write_sealed_index(disk, segment, {key: table for key, table in tables.items() if _says_something(table)})


def _says_something(table: RunTable) -> bool:
    return len(table) > 0 or table.truncated_to < INT64_MAX
