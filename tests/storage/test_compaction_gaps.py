"""Reads of a log that compaction has left gaps in: where records follow, a read never comes back empty.

Consumers and coordinators take an empty read below the high watermark for the end (Kafka's LocalLog.read goes on to the
next segment for the same reason).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio

from ottla.storage.clock import ManualClock
from ottla.storage.config import StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.log_manager import LogManager
from ottla.storage.partition_log import PartitionLog
from ottla.storage.reader import read

COMPACTED = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": 0}

A_SEGMENT = 8
"""About so many of the records below fill a segment."""


async def append_keys(harness: Any, log: PartitionLog, keys: Sequence[str]) -> None:
    """One batch and one block a key; a key in capitals is a tombstone."""
    for key in keys:
        value = b"v" * 150
        if key.isupper():
            records = harness.batch([None], key=key.lower().encode())
            log.append_as_leader(records, None, leader_epoch=0, now_ms=harness.clock.time_ms())
        else:
            harness.append(log, value, key=key.encode())
        await log.flush()
    log.advance_high_watermark(log.log_end_offset)
    await log.store.context.maintenance.wait_idle()


async def compact(harness: Any, manager: LogManager, passes: int = 1) -> None:
    for _ in range(passes):
        await manager.clean()
        harness.clock.advance(1000)
        await manager.context.maintenance.wait_idle()


async def check_every_offset(harness: Any, log: PartitionLog, expected: Sequence[int]) -> None:
    """From each offset on, the first record of a read is the next one there is, whatever the limits."""
    for offset in range(log.log_start_offset, log.log_end_offset + 1):
        for end_offset in {log.log_end_offset, min(log.log_end_offset, offset + 11)}:
            following = [each for each in expected if offset <= each < end_offset]
            for max_bytes in (0, 1, 700, 1 << 20):
                found = await harness.read_records(log, offset, max_bytes=max_bytes, end_offset=end_offset)
                offsets = [each for each, _ in found]
                assert offsets == following[: len(offsets)], (offset, end_offset, max_bytes)
                assert bool(offsets) is bool(following), (offset, end_offset, max_bytes)
                assert max_bytes < 1 << 20 or offsets == following


async def surviving(harness: Any, log: PartitionLog, keys: Sequence[str]) -> list[int]:
    """The offsets that are left: whatever a read of one batch finds from any offset on. No key has lost its value."""
    found: set[int] = set()
    for offset in range(log.log_start_offset, log.log_end_offset):
        found.update(each for each, _ in await harness.read_records(log, offset, max_bytes=0))
    last = {key.lower(): offset for offset, key in enumerate(keys)}
    assert {offset for offset in last.values() if not keys[offset].isupper()} <= found
    return sorted(found)


LAYOUTS = {
    "the first batches of a segment are gone": ["a", "b", "c", "d"] * 4 + ["e", "f", "g", "h"] * 4,
    "whole segments are gone": ["k"] * (6 * A_SEGMENT),
    "gaps within a segment": ["a", "x", "b", "x", "c", "x", "d", "x", "e"] * 5,
    "the last batches of a segment are gone": [f"s{n}" for n in range(5)] + ["z"] * 9 + [f"t{n}" for n in range(5)] * 3,
    "tombstones were the last of a segment": ["a", "b", "c", "d", "A", "B", "C", "D"] * 4 + ["e"] * 9,
}


@pytest.mark.parametrize("tail_cache_bytes", [0, 4 << 20], ids=["from files", "tail in memory"])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_read_goes_on_beyond_a_gap(harness: Any, layout: str, tail_cache_bytes: int) -> None:
    keys = LAYOUTS[layout]
    async with harness.manager(segment_bytes=2500, tail_cache_bytes=tail_cache_bytes) as manager:
        log = await harness.open(manager, **COMPACTED)
        await append_keys(harness, log, keys)
        assert len(log.store.files.segments) > 3
        await compact(harness, manager, passes=3)
        await check_every_offset(harness, log, await surviving(harness, log, keys))
    async with harness.manager(segment_bytes=2500) as manager:
        log = await harness.open(manager, **COMPACTED)
        expected = await surviving(harness, log, keys)
        assert len(expected) < len(keys) - A_SEGMENT
        await check_every_offset(harness, log, expected)


async def test_a_read_finds_more_blocks_than_one_read_takes(harness: Any) -> None:
    async with harness.manager(tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        for number in range(2500):
            harness.append(log, b"%d" % number)
            if not number % 50:
                await log.flush()
            else:
                await log.store.flush(sync=False)
        await log.flush()
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(2500))


class SealsMeanwhile:
    """Runs blocking work in a thread; what is to happen meanwhile happens once, before it returns."""

    def __init__(self) -> None:
        self.before_return: Any = None

    async def __call__(self, function: Any) -> Any:
        result = await trio.to_thread.run_sync(function)
        if self.before_return is not None:
            act, self.before_return = self.before_return, None
            await act()
        return result


async def test_a_segment_that_is_sealed_under_a_fetch_is_read(harness: Any) -> None:
    """Two partitions of one fetch: while the spans of the first are derived, the second one's records are sealed."""
    run_blocking = SealsMeanwhile()
    config = StorageConfig(segment_bytes=2500, tail_cache_bytes=0)
    manager = LogManager(RealDisk(), harness.folder, config, ManualClock(), run_blocking=run_blocking)
    async with manager.run():
        first = await harness.open(manager, 0)
        await append_keys(harness, first, ["a"] * 20)
        second = await harness.open(manager, 1)
        await append_keys(harness, second, ["b"])
        assert any(second.key in (segment.tables or {}) for segment in second.store.files.unsealed)
        first.spans = second.spans = None
        run_blocking.before_return = partial(append_keys, harness, first, ["a"] * 20)
        plans = [
            log.plan_read(0, max_bytes=1 << 20, end_offset=log.log_end_offset, min_one_batch=True)
            for log in (first, second)
        ]
        await read(plans)
        assert run_blocking.before_return is None
        assert not any(second.key in (segment.tables or {}) for segment in second.store.files.unsealed)
        for plan in plans:
            assert plan.error is None
            assert plan.records is not None
            assert plan.records.size_bytes > 0
            plan.records.release()
