"""Where one partition's data lies among a store's segments.

A span is the partition's part of one sealed segment. The spans of a log are derived, when first needed, from the
segments' index files, newest first: what a later segment overruled (by a truncation) is clipped from the older ones.
The runs of unsealed segments are in memory and need no spans.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.store.index_files import load_index

if TYPE_CHECKING:
    from ottla.storage.disk import Disk
    from ottla.storage.format.run_table import RunTable
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.store.segment import Segment

__all__ = ["Span", "Spans", "ensure_spans", "unsealed_tables"]


class Span(NamedTuple):
    """A partition's part of one sealed segment: offsets [base, last], and its pages in the segment's index.

    `last_offset` may be less than that of the pages' last run: what lies beyond is void.
    """

    segment: Segment
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    size_bytes: int
    pages: range


class Spans:
    """A log's spans in the order of offsets, true for one layout of the store."""

    __slots__ = ("layout_version", "spans")

    def __init__(self, layout_version: int, spans: list[Span]) -> None:
        self.layout_version = layout_version
        self.spans = spans

    def find_offset(self, offset: int) -> int:
        """The index of the first span whose last offset is at least this; the count if there is none."""
        return bisect_left(self.spans, offset, key=lambda span: span.last_offset)

    def truncate(self, offset: int) -> None:
        """Clip everything at and beyond an offset."""
        self.spans = _clip(reversed(self.spans), offset)


def _clip(newest_first: Iterable[Span], limit: int) -> list[Span]:
    """The spans oldest first, none reaching the base of a later one or the limit."""
    clipped: list[Span] = []
    for span in newest_first:
        if span.base_offset < limit:
            clipped.append(span if span.last_offset < limit else span._replace(last_offset=limit - 1))
            limit = span.base_offset
    clipped.reverse()
    return clipped


def unsealed_tables(log: PartitionLog) -> list[tuple[Segment, RunTable]]:
    """The log's runs in unsealed segments, in the order of offsets."""
    found = []
    for segment in log.store.files.unsealed:
        assert segment.tables is not None
        table = segment.tables.get(log.key)
        if table is not None and len(table):
            found.append((segment, table))
    return found


async def ensure_spans(logs: Sequence[PartitionLog]) -> None:
    """Derive the spans of these logs where they are not true any more; one worker-thread call for all."""
    for log in logs:
        if not log.store.files.has_sealed:
            log.spans = Spans(layout_of(log), [])
    while stale := [log for log in logs if log.spans is None or log.spans.layout_version != layout_of(log)]:
        jobs = [(log, layout_of(log), tuple(log.store.files.segments), _limit(log)) for log in stale]
        pinned = {segment for _, _, segments, _ in jobs for segment in segments}
        for segment in pinned:
            segment.pins += 1
        context = stale[0].store.context
        try:
            found = await context.offload(
                _find_all, context.disk, [(log.key, segs, limit) for log, _, segs, limit in jobs]
            )
        finally:
            for segment in pinned:
                context.unpin_segment(segment)
        for (log, version, _, limit), spans in zip(jobs, found, strict=True):
            # A truncation meanwhile has lowered the limit; another layout means to do it again.
            log.spans = Spans(version, spans)
            if _limit(log) < limit:
                log.spans.truncate(_limit(log))


def layout_of(log: PartitionLog) -> int:
    """The version of the store's layout that the log's spans must be of."""
    return log.store.files.layout_version


def _limit(log: PartitionLog) -> int:
    """The offset at and beyond which sealed segments hold nothing that is still true."""
    limit = log.log_end_offset
    for segment in log.store.files.unsealed:
        assert segment.tables is not None
        table = segment.tables.get(log.key)
        if table is not None:
            limit = min(limit, table.truncated_to)
            if len(table):
                limit = min(limit, table.base_offset)
    return limit


def _find_all(disk: Disk, jobs: Sequence[tuple[bytes, Sequence[Segment], int]]) -> list[list[Span]]:
    return [_find(disk, key, segments, limit) for key, segments, limit in jobs]


def _find(disk: Disk, key: bytes, segments: Sequence[Segment], limit: int) -> list[Span]:
    """A partition's spans, newest segment first. Blocks."""
    found: list[Span] = []
    for segment in reversed(segments):
        if not segment.is_sealed:
            continue
        index = load_index(disk, segment)
        pages = index.find_pages(key)
        if not pages:
            continue
        records = [index.page(place) for place in pages]
        base_offset, last_offset = records[0].base_offset, min(records[-1].last_offset, limit - 1)
        if base_offset <= last_offset:
            size_bytes = sum(page.size_bytes for page in records)
            found.append(Span(segment, base_offset, last_offset, records[-1].max_timestamp_ms, size_bytes, pages))
            limit = base_offset
        limit = min(limit, records[0].truncated_to)
    found.reverse()
    return found
