"""What compaction leaves has gaps: every offset can still be asked for, and the answer begins at the next record."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.reading.plan import read

SETTINGS = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.01}


async def _compacted(harness: Any, manager: Any) -> PartitionLog:
    log: PartitionLog = await harness.open(manager, **SETTINGS)
    for number in range(80):
        # Long stretches in which nothing survives, and keys that do.
        key = b"survivor %d" % number if number % 17 == 0 else b"overwritten"
        harness.append(log, b"%d" % number + b"." * 120, key=key)
        await log.flush()
    log.advance_high_watermark(log.log_end_offset)
    await manager.maintenance.wait_idle()
    await manager.clean()
    return log


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 400, 1 << 20])
async def test_every_offset_leads_to_the_next_record(harness: Any, max_bytes: int, restart: bool) -> None:
    settings = {"segment_bytes": 2500, "run_bytes": 300, "tail_cache_bytes": 0}
    async with harness.manager(**settings) as manager:
        log = await _compacted(harness, manager)
        offsets = [offset for offset, _ in await harness.read_all(log)]
        assert len(offsets) < 40
        assert [offset for offset in offsets if offset % 17 == 0] == [0, 17, 34, 51, 68]
        if not restart:
            await _check_every_offset(harness, log, offsets, max_bytes)
    if restart:
        async with harness.manager(**settings) as manager:
            await _check_every_offset(harness, await harness.open(manager, **SETTINGS), offsets, max_bytes)


async def _check_every_offset(harness: Any, log: PartitionLog, offsets: list[int], max_bytes: int) -> None:
    for offset in range(log.log_end_offset):
        found = [each for each, _ in await harness.read_records(log, offset, max_bytes=max_bytes)]
        following = [each for each in offsets if each >= offset]
        assert found == following[: len(found)]
        assert found


async def test_an_end_within_a_gap_cuts_there_and_the_reader_goes_on_behind_it(harness: Any) -> None:
    async with harness.manager(segment_bytes=2500, tail_cache_bytes=0) as manager:
        log = await _compacted(harness, manager)
        offsets = [offset for offset, _ in await harness.read_all(log)]
        before, behind = next((left, right) for left, right in pairwise(offsets) if right - left > 5)
        end = before + 3
        plan = log.plan_read(before + 1, max_bytes=1 << 20, end_offset=end, min_one_batch=True)
        await read([plan])
        assert plan.records is not None
        assert plan.records.size_bytes == 0
        assert [each for each, _ in await harness.read_records(log, before, end_offset=end)] == [before]
        assert (await harness.read_records(log, before + 1))[0][0] == behind


async def test_the_log_may_begin_within_a_gap(harness: Any) -> None:
    async with harness.manager(segment_bytes=2500, tail_cache_bytes=0) as manager:
        log = await _compacted(harness, manager)
        offsets = [offset for offset, _ in await harness.read_all(log)]
        left, right = next((a, b) for a, b in pairwise(offsets) if b - a > 5)
        await log.advance_log_start_offset(left + 2)
        assert [offset for offset, _ in await harness.read_all(log)] == [each for each in offsets if each >= right]
        await manager.clean()
        assert [offset for offset, _ in await harness.read_all(log)] == [each for each in offsets if each >= right]
    async with harness.manager() as manager:
        log = await harness.open(manager, **SETTINGS)
        assert log.log_start_offset == left + 2
        assert [offset for offset, _ in await harness.read_all(log)] == [each for each in offsets if each >= right]
