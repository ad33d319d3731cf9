"""When a log is due for compaction, and what may be cleaned."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.config import LogConfig
from ottla.storage.reading.places import Span
from ottla.storage.store.segment import Segment
from ottla.storage.upkeep.compaction.policy import CleanableRange, cleanable_range

NOW_MS = 1_000_000


def span(base_offset: int, last_offset: int, max_timestamp_ms: int = NOW_MS, size_bytes: int = 100) -> Span:
    """A log's part of some sealed segment."""
    return Span(Segment("/", base_offset), base_offset, last_offset, max_timestamp_ms, size_bytes, range(0))


THREE = [span(0, 9, NOW_MS - 300), span(10, 19, NOW_MS - 200), span(20, 29, NOW_MS - 100)]


def decide(
    spans: list[Span],
    config: LogConfig | None = None,
    *,
    first_dirty: int = 0,
    log_start: int = 0,
    stable: int = 1_000,
    earliest_ms: int | None = None,
) -> CleanableRange:
    return cleanable_range(
        spans,
        config or LogConfig(),
        first_dirty_offset=first_dirty,
        log_start_offset=log_start,
        stable_offset=stable,
        now_ms=NOW_MS,
        earliest_dirty_timestamp_ms=earliest_ms,
    )


def test_a_log_that_was_never_cleaned_is_due() -> None:
    assert decide(THREE) == CleanableRange(0, 30, 0, 300, is_due=True)


def test_a_log_without_sealed_spans_is_not() -> None:
    assert decide([], log_start=7) == CleanableRange(7, 7, 0, 0, is_due=False)


def test_the_dirty_ratio_must_be_exceeded() -> None:
    half = [*THREE, span(30, 39)]
    assert not decide(half, first_dirty=20).is_due
    assert decide(half, LogConfig(min_cleanable_dirty_ratio=0.49), first_dirty=20).is_due
    assert decide(half, first_dirty=20).dirty_ratio == 0.5


def test_a_clean_log_is_not_due() -> None:
    assert decide(THREE, LogConfig(min_cleanable_dirty_ratio=0.0), first_dirty=30) == CleanableRange(
        30, 30, 300, 0, is_due=False
    )


def test_open_transactions_bound_the_pass() -> None:
    assert decide(THREE, stable=15) == CleanableRange(0, 15, 0, 200, is_due=True)
    assert not decide(THREE, stable=0).is_due
    assert decide(THREE, first_dirty=20, stable=15) == CleanableRange(20, 20, 200, 0, is_due=False)


def test_young_spans_are_left_alone() -> None:
    assert decide(THREE, LogConfig(min_compaction_lag_ms=150)) == CleanableRange(0, 20, 0, 200, is_due=True)
    assert decide(THREE, LogConfig(min_compaction_lag_ms=300)).end_offset == 10
    assert decide(THREE, LogConfig(min_compaction_lag_ms=301)).end_offset == 0


def test_an_old_record_makes_it_due_whatever_the_ratio() -> None:
    config = LogConfig(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=500)
    assert not decide(THREE, config, earliest_ms=NOW_MS - 500).is_due
    assert decide(THREE, config, earliest_ms=NOW_MS - 501).is_due
    assert not decide(THREE, config, earliest_ms=NOW_MS - 501, first_dirty=30).is_due
    assert not decide(THREE, config).is_due


def test_a_dirty_offset_outside_the_log_means_that_nothing_is_clean() -> None:
    moved = [span(10, 19), span(20, 29)]
    assert decide(moved, first_dirty=5, log_start=10).first_dirty_offset == 10
    assert decide(moved, first_dirty=31, log_start=10).first_dirty_offset == 10


@given(
    sizes=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3), st.integers(0, 1_000)), max_size=8),
    first_dirty=st.integers(0, 200),
    stable=st.integers(0, 200),
    lag_ms=st.integers(0, 1_000),
)
def test_the_range_never_reaches_what_must_be_left_alone(
    sizes: list[tuple[int, int, int]], first_dirty: int, stable: int, lag_ms: int
) -> None:
    spans, offset = [], 0
    for count, gap, age_ms in sizes:
        spans.append(span(offset + gap, offset + gap + count - 1, NOW_MS - age_ms, 10 * count))
        offset += gap + count
    found = decide(spans, LogConfig(min_compaction_lag_ms=lag_ms), first_dirty=first_dirty, stable=stable)
    assert 0 <= found.first_dirty_offset <= found.end_offset
    if found.is_due:
        assert found.first_dirty_offset < found.end_offset <= min(stable, offset)
        touched = [p for p in spans if p.base_offset < found.end_offset and p.last_offset >= found.first_dirty_offset]
        assert sum(piece.size_bytes for piece in touched) == found.dirty_bytes
        if lag_ms:
            assert all(NOW_MS - piece.max_timestamp_ms >= lag_ms for piece in touched)
