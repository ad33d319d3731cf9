"""What is deleted where, of a log that is on the disk and in the object store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.config import LogConfig
from ottla.storage.reading.parts import Part
from ottla.storage.state.leader_epochs import EpochEntry, LeaderEpochs
from ottla.tiers.border import joined_epochs, local_retained_start, retained_log_start
from ottla.tiers.manifest import Manifest
from tests.tiers.test_manifest import TOPIC_ID, manifest_of, segment

NOW_MS = 100_000
#: Segments of ten offsets and 100 bytes, each ten milliseconds younger than the one before it.
PARTS = [Part(10 * number + 9, 1009 + 10 * number, 100) for number in range(6)]


def local_start(manifest: Manifest, *, start: int = 0, ms: int = -1, size: int = -1, high_watermark: int = 60) -> int:
    return local_retained_start(
        [part for part in PARTS if part.last_offset >= start],
        LogConfig(retention_ms=1, retention_bytes=1),
        manifest,
        local_retention_ms=ms,
        local_retention_bytes=size,
        local_start=start,
        high_watermark=high_watermark,
        now_ms=NOW_MS,
    )


@pytest.mark.parametrize(
    ("ms", "size", "expected"),
    [
        (-1, -1, 0),
        (0, -1, 30),
        (-1, 0, 30),
        (-1, 100, 30),
        (-1, 400, 20),
        (-1, 401, 10),
        (-1, 600, 0),
        (NOW_MS - 1019 - 1, -1, 20),
        (NOW_MS - 1019, -1, 10),
    ],
)
def test_the_disk_keeps_what_local_retention_says_and_what_is_not_copied(ms: int, size: int, expected: int) -> None:
    assert local_start(manifest_of(10, 20, 30), ms=ms, size=size) == expected


def test_nothing_goes_from_the_disk_that_no_manifest_names() -> None:
    assert local_start(Manifest(TOPIC_ID, 2), ms=0) == 0
    # In the middle of a segment.
    assert local_start(manifest_of(10, 25), ms=0) == 20
    assert local_start(manifest_of(10, 20, 30), ms=0, high_watermark=15) == 10
    # A manifest that ends before the disk begins, or begins after it, is another log's.
    assert local_start(manifest_of(10), start=20, ms=0) == 20
    assert local_start(manifest_of(10, 20, 30).with_log_start(15, 1), start=10, ms=0) == 10


@given(st.lists(st.integers(1, 20), max_size=8), st.integers(-1, 700), st.integers(-1, NOW_MS), st.integers(0, 60))
def test_what_is_on_no_disk_is_in_the_manifest(sizes: list[int], size: int, ms: int, high_watermark: int) -> None:
    ends = [sum(sizes[: count + 1]) for count in range(len(sizes))]
    manifest = manifest_of(*ends)
    start = local_start(manifest, ms=ms, size=size, high_watermark=high_watermark)
    assert 0 <= start <= min(manifest.end_offset, high_watermark)
    assert all(manifest.find(offset) is not None for offset in range(start))


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "only_local_bytes", "expected"),
    [
        (-1, -1, 0, 0),
        # The newest records of the three are of 1009, 1024 and 1029; 300 bytes together.
        (NOW_MS - 1009 + 1, -1, 0, 0),
        (NOW_MS - 1009, -1, 0, 10),
        (NOW_MS - 1024, -1, 0, 25),
        (0, -1, 0, 30),
        (-1, 300, 0, 0),
        (-1, 200, 0, 10),
        (-1, 201, 0, 0),
        (-1, 200, 49, 10),
        (-1, 200, 150, 25),
        (-1, 0, 0, 30),
        (-1, 300, 1000, 30),
    ],
)
def test_the_whole_log_keeps_what_retention_says(
    retention_ms: int, retention_bytes: int, only_local_bytes: int, expected: int
) -> None:
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
    manifest = manifest_of(10, 25, 30)
    start = retained_log_start(manifest, config, only_local_bytes=only_local_bytes, now_ms=NOW_MS)
    assert start == expected
    assert manifest.with_log_start(start, 1).size_bytes + only_local_bytes >= min(
        retention_bytes, manifest.size_bytes + only_local_bytes
    ) or (retention_ms >= 0)


def test_a_log_that_is_not_deleted_keeps_everything() -> None:
    config = LogConfig(delete=False, retention_ms=0, retention_bytes=0)
    assert retained_log_start(manifest_of(10, 25), config, only_local_bytes=0, now_ms=NOW_MS) == 0


def test_records_without_times_are_as_old_as_their_copy() -> None:
    without = segment(0, 9)._replace(max_timestamp_ms=-1, uploaded_at_ms=5000)
    manifest = Manifest(TOPIC_ID, 2).with_segment(without, [EpochEntry(1, 0)], 1, after=-1)
    for retention_ms, expected in ((NOW_MS - 5000, 10), (NOW_MS - 4999, 0)):
        config = LogConfig(retention_ms=retention_ms)
        assert retained_log_start(manifest, config, only_local_bytes=0, now_ms=NOW_MS) == expected


def test_the_epochs_of_both_parts() -> None:
    manifest = manifest_of(10, 20, epoch=2)
    local = LeaderEpochs()
    local.assign(2, 15)
    local.assign(5, 30)
    joined = joined_epochs(manifest, local)
    assert list(joined) == [EpochEntry(2, 0), EpochEntry(5, 30)]
    assert joined.end_offset_for(2, 40) == (2, 30)
    assert joined.epoch_for_offset(12) == 2
    assert list(joined_epochs(manifest, LeaderEpochs())) == [EpochEntry(2, 0)]
    assert list(joined_epochs(Manifest(TOPIC_ID, 2), local)) == list(local)
    # The one that is here only in part began in the object store.
    longer = manifest.with_segment(segment(20, 29), [EpochEntry(3, 24)], 3, after=2)
    partly = LeaderEpochs()
    partly.assign(3, 26)
    assert list(joined_epochs(longer, partly)) == [EpochEntry(2, 0), EpochEntry(3, 24)]
    # The leader's log has later epochs from where the manifest has one: the log is right, and the copy refused.
    later = LeaderEpochs()
    later.assign(3, 12)
    assert list(joined_epochs(manifest, later)) == [EpochEntry(2, 0), EpochEntry(3, 12)]
