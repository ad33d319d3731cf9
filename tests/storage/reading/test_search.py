"""Finding a record by its timestamp: how much of a log is read for it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.storage.reading.reader import Reader

FIRST_MS = 1_700_000_000_000


@pytest.mark.parametrize("segment_bytes", [1000, 1_000_000])
async def test_only_the_run_that_has_it_is_read(
    harness: Any, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    """What follows lies in other segments, each of which would have to be opened."""
    read_bytes: list[int] = []
    read_batches = Reader.read_batches

    async def noted(reader: Reader, log: Any, offset: int, end_offset: int) -> Any:
        records, following = await read_batches(reader, log, offset, end_offset)
        read_bytes.append(records.size_bytes)
        return records, following

    async with harness.manager(segment_bytes=segment_bytes, tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        for number in range(20):
            harness.append(log, b"x" * 800, timestamp_ms=FIRST_MS + 1000 * number)
            await log.flush()
        await harness.settle()
        monkeypatch.setattr(Reader, "read_batches", noted)
        for number in (0, 7, 19):
            found = await log.offset_for_timestamp(FIRST_MS + 1000 * number - 1)
            assert (found.offset, found.timestamp_ms) == (number, FIRST_MS + 1000 * number)
        assert len(read_bytes) == 3
        assert max(read_bytes) < 2000


async def test_what_a_run_has_no_longer_is_found_behind_it(harness: Any) -> None:
    """The largest timestamp of a run may be that of a record below the log's start."""
    async with harness.manager(segment_bytes=1000, tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        for timestamp_ms in (FIRST_MS + 5000, FIRST_MS, FIRST_MS + 7000):
            harness.append(log, b"x", timestamp_ms=timestamp_ms)
        await log.flush()
        for _ in range(5):
            harness.append(log, b"y" * 800, timestamp_ms=FIRST_MS + 9000)
            await log.flush()
        log.set_high_watermark(8)
        log.move_log_start(1)
        await harness.settle()
        found = await log.offset_for_timestamp(FIRST_MS + 4000)
        assert (found.offset, found.timestamp_ms) == (2, FIRST_MS + 7000)
        found = await log.offset_for_timestamp(FIRST_MS + 7001)
        assert (found.offset, found.timestamp_ms) == (3, FIRST_MS + 9000)
