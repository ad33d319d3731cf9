"""Where a log should begin, by its topic's retention settings (Kafka's `UnifiedLog.deleteOldSegments`).

A log gives up its part of whole segments: those whose newest record is older than `retention.ms`, and the oldest ones
while the log without them is still as large as `retention.bytes`. Nothing beyond the high watermark goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.storage.config import LogConfig
from ottla.storage.reading.parts import Part

__all__ = ["retained_start"]


def retained_start(parts: Sequence[Part], config: LogConfig, log_start: int, high_watermark: int, now_ms: int) -> int:
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
