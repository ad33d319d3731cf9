"""Where a log should begin, by its topic's retention settings (Kafka's `UnifiedLog.deleteOldSegments`).

A log gives up its part of whole segments: those whose newest record is older than `retention.ms`, and the oldest ones
while the log without them is still as large as `retention.bytes`. Nothing beyond the high watermark goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.config import INT64_MAX
from ottla.storage.reading.spans import unsealed_tables

if TYPE_CHECKING:
    from ottla.storage.config import LogConfig
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.store.segment import Segment

__all__ = ["Part", "parts_of", "retained_start", "size_of"]


class Part(NamedTuple):
    """A log's part of one segment. `time_ms` is its largest timestamp, or when it was written at last."""

    last_offset: int
    time_ms: int
    size_bytes: int


def parts_of(log: PartitionLog) -> list[Part]:
    """The parts of a log whose spans are known, oldest first, less what lies below the log start offset."""
    spans = log.spans.spans if log.spans is not None else []
    found = [
        Part(span.last_offset, _time(log, span.segment, span.max_timestamp_ms), span.size_bytes)
        for span in spans
        if span.last_offset >= log.log_start_offset
    ]
    found += [
        Part(table.last_offset, _time(log, segment, table.max_timestamp_ms), table.size_bytes)
        for segment, table in unsealed_tables(log)
        if table.last_offset >= log.log_start_offset
    ]
    return found


def _time(log: PartitionLog, segment: Segment, timestamp_ms: int) -> int:
    if timestamp_ms >= 0:
        return timestamp_ms
    segments = log.store.files.segments
    following = segments.index(segment) + 1
    return segments[following].created_at_ms if following < len(segments) else log.store.context.clock.time_ms()


def size_of(log: PartitionLog, end_offset: int = INT64_MAX) -> int:
    """The bytes of the parts that the log still needs, of those that end before an offset; its spans must be known."""
    return sum(part.size_bytes for part in parts_of(log) if part.last_offset < end_offset)


def retained_start(parts: list[Part], config: LogConfig, log_start: int, high_watermark: int, now_ms: int) -> int:
    """The offset at which the log should begin."""
    if not config.delete:
        return log_start
    excess = sum(part.size_bytes for part in parts) - config.retention_bytes
    start = log_start
    for part in parts:
        is_expired = config.retention_ms >= 0 and now_ms - part.time_ms > config.retention_ms
        is_surplus = config.retention_bytes >= 0 and excess >= part.size_bytes
        if part.last_offset >= high_watermark or not (is_expired or is_surplus):
            break
        start = part.last_offset + 1
        excess -= part.size_bytes
    return start
