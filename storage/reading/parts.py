"""A log's parts of the segments, sealed or not, for retention and the cleaner."""

from __future__ import annotations

from typing import NamedTuple

from ottla.storage.config import INT64_MAX
from ottla.storage.reading.plan import ReadableLog
from ottla.storage.store.segment import Segment

__all__ = ["Part", "parts_of", "sealed_parts_of", "size_of"]


class Part(NamedTuple):
    """A log's part of one segment. `time_ms` is its largest timestamp.

    Where no record has one, it is when the segment's file was written to at last, as in Kafka's
    `LogSegment.largestTimestamp`.
    """

    last_offset: int
    time_ms: int
    size_bytes: int


def parts_of(log: ReadableLog) -> list[Part]:
    """The parts of a log whose spans are known, oldest first, less what lies below the log start offset."""
    found = sealed_parts_of(log)
    found += [
        Part(table.last_offset, _time(log, segment, table.max_timestamp_ms), table.size_bytes)
        for segment, table in log.places.unsealed()
        if table.last_offset >= log.log_start_offset
    ]
    return found


def sealed_parts_of(log: ReadableLog) -> list[Part]:
    """Those of them that are in sealed segments."""
    return [
        Part(span.last_offset, _time(log, span.segment, span.max_timestamp_ms), span.size_bytes)
        for span in log.places.spans
        if span.last_offset >= log.log_start_offset
    ]


def _time(log: ReadableLog, segment: Segment, timestamp_ms: int) -> int:
    if timestamp_ms >= 0:
        return timestamp_ms
    segments = log.store.files.segments
    following = segments.index(segment) + 1
    # A sealed file may have been rewritten since, but it took no records after the next one was begun.
    return segments[following].created_at_ms if following < len(segments) else segment.written_at_ms


def size_of(log: ReadableLog, end_offset: int = INT64_MAX) -> int:
    """The bytes of the parts that the log still needs, of those that end before an offset; its spans must be known."""
    return sum(part.size_bytes for part in parts_of(log) if part.last_offset < end_offset)
