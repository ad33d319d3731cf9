"""Which runs of the files a read needs: a partition's sealed spans, then its runs in unsealed segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.storage.disk.disk import Disk, Handle
from ottla.storage.format.block import RunFlag
from ottla.storage.format.run_table import RunEntry
from ottla.storage.format.sealed_index import CorruptIndexError
from ottla.storage.reading.places import Places, Span
from ottla.storage.store.index_files import load_index
from ottla.storage.store.segment import Segment

__all__ = ["Extent", "contiguous", "spans_from", "unsealed_extents", "wanted_after"]

# The limit of one read: what lies beyond is for the next one.
_MAX_EXTENTS = 1024


class Extent(NamedTuple):
    """A run to be read."""

    segment: Segment
    entry: RunEntry


def wanted_after(wanted: int, entry: RunEntry, offset: int) -> int:
    """How many bytes are still wanted after a run: one that begins before the offset or was cut may yield nothing."""
    return wanted - entry.length if entry.base_offset >= offset and not entry.flags & RunFlag.CLIPPED else wanted


def spans_from(places: Places, offset: int, end_offset: int, wanted: int) -> tuple[list[Span], int]:
    """The spans that hold `wanted` bytes from an offset on, and how many bytes they leave to be wanted."""
    found: list[Span] = []
    for span in places.spans_from(offset):
        if wanted <= 0 or span.base_offset >= end_offset:
            break
        found.append(span)
        wanted -= span.size_bytes if span.base_offset > offset else 0
    return found, wanted


def unsealed_extents(places: Places, offset: int, end_offset: int, wanted: int) -> Iterator[Extent]:
    """The runs of unsealed segments that hold `wanted` bytes from an offset on, without a gap, 1,024 at the most."""
    left = _MAX_EXTENTS
    for segment, table in places.unsealed():
        for index in range(table.find_offset(offset), len(table)):
            entry = table[index]
            if wanted <= 0 or not left or entry.base_offset >= end_offset:
                return
            left -= 1
            yield Extent(segment, entry)
            wanted = wanted_after(wanted, entry, offset)


def span_extents(disk: Disk, handles: Mapping[str, Handle], span: Span, offset: int, wanted: int) -> Iterator[Extent]:
    """The runs of a span that hold `wanted` bytes from an offset on, from its index pages. Blocks."""
    if wanted <= 0:
        return
    segment = span.segment
    index = load_index(disk, segment)
    handle = handles.get(segment.index_path)
    if handle is None:
        raise CorruptIndexError("the index file is missing")
    for place in range(index.find_offset(span.pages, offset), span.pages.stop):
        table = index.read_page(disk, handle, index.page(place))
        for number in range(table.find_offset(offset), len(table)):
            entry = table[number]
            if wanted <= 0 or entry.base_offset > span.last_offset:
                return
            if entry.last_offset > span.last_offset:
                entry = entry._replace(last_offset=span.last_offset, flags=entry.flags | RunFlag.CLIPPED)
            yield Extent(segment, entry)
            wanted = wanted_after(wanted, entry, offset)


def contiguous(extents: Sequence[Extent]) -> Iterator[tuple[Segment, int, int]]:
    """(segment, position, length) of the stretches of file that the runs lie in."""
    first = 0
    while first < len(extents):
        segment, entry = extents[first]
        end = entry.position + entry.length
        following = first + 1
        while following < len(extents) and extents[following].segment is segment:
            if extents[following].entry.position != end:
                break
            end += extents[following].entry.length
            following += 1
        yield segment, entry.position, end - entry.position
        first = following
