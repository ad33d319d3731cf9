"""Whether a log is due for compaction, and from where to where (Kafka's `LogCleanerManager`, KIP-58, KIP-354)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.storage.config import LogConfig
from ottla.storage.reading.places import Span


@dataclass(slots=True, frozen=True)
class CleanableRange:
    """What one pass may clean: keys are noted from [first_dirty_offset, end_offset), batches rewritten below it."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_due: bool

    @property
    def dirty_ratio(self) -> float:
        """The part of the log that is dirty: the log with the largest is cleaned first."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable_range(
    spans: Sequence[Span],
    config: LogConfig,
    *,
    first_dirty_offset: int,
    log_start_offset: int,
    stable_offset: int,
    now_ms: int,
    earliest_dirty_timestamp_ms: int | None = None,
) -> CleanableRange:
    """Decide on a log whose sealed spans are given in the order of offsets.

    `stable_offset` is the last stable offset: open transactions and what is not replicated are left alone, as is what
    is younger than `min.compaction.lag.ms`. The log is due when the dirty part exceeds `min.cleanable.dirty.ratio`, or
    when its earliest record is older than `max.compaction.lag.ms` (its time is unknown without
    `earliest_dirty_timestamp_ms`). A first dirty offset outside the log means that nothing is known to be clean.
    """
    if not spans:
        return CleanableRange(log_start_offset, log_start_offset, 0, 0, is_due=False)
    sealed_end_offset = spans[-1].last_offset + 1
    if not log_start_offset <= first_dirty_offset <= sealed_end_offset:
        first_dirty_offset = log_start_offset
    end_offset = min(stable_offset, sealed_end_offset)
    clean_bytes = dirty_bytes = 0
    for span in spans:
        if span.last_offset < first_dirty_offset:
            clean_bytes += span.size_bytes
        elif span.base_offset >= end_offset:
            break
        elif _is_young(span, config, now_ms):
            end_offset = min(end_offset, span.base_offset)
            break
        else:
            dirty_bytes += span.size_bytes
    end_offset = max(end_offset, first_dirty_offset)
    found = CleanableRange(first_dirty_offset, end_offset, clean_bytes, dirty_bytes, is_due=False)
    if end_offset == first_dirty_offset:
        return found
    is_overdue = earliest_dirty_timestamp_ms is not None and (
        now_ms - earliest_dirty_timestamp_ms > max(config.max_compaction_lag_ms, config.min_compaction_lag_ms)
    )
    is_due = is_overdue or found.dirty_ratio > config.min_cleanable_dirty_ratio
    return CleanableRange(first_dirty_offset, end_offset, clean_bytes, dirty_bytes, is_due)


def _is_young(span: Span, config: LogConfig, now_ms: int) -> bool:
    return config.min_compaction_lag_ms > 0 and span.max_timestamp_ms > now_ms - config.min_compaction_lag_ms
