"""What a truncation takes away and what it must leave: producers, also of a compacted log, and the log's size."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.storage.errors import OutOfOrderSequenceError
from ottla.storage.log.partition_log import PartitionLog

PRODUCER = {"producer_id": 9, "producer_epoch": 3}


def producer_state(log: PartitionLog) -> tuple[int, int]:
    """(epoch, last sequence) of the one producer; fails if the log does not know it."""
    assert log.producers is not None
    entry = log.producers.get(9)
    assert entry is not None
    return entry.producer_epoch, entry.last_sequence


async def test_a_producer_is_known_up_to_where_the_log_was_cut(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        for sequence in range(8):
            harness.append(log, b"x", base_sequence=sequence, **PRODUCER)
        await log.truncate_to(6)
        assert producer_state(log) == (3, 5)
        with pytest.raises(OutOfOrderSequenceError):
            harness.append(log, b"y", base_sequence=8, **PRODUCER)
        assert harness.append(log, b"x", base_sequence=5, **PRODUCER).duplicate
        await log.truncate_to(1)  # all five batches that are remembered are gone
        assert producer_state(log) == (3, 0)
        assert harness.append(log, b"z", base_sequence=1, **PRODUCER).base_offset == 1
    async with harness.manager() as manager:
        assert producer_state(await harness.open(manager)) == (3, 1)


@pytest.mark.parametrize("beyond", [1, 7])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_compacted_log_that_is_cut_knows_its_producers(harness: Any, beyond: int, restart: bool) -> None:
    """`beyond` batches of the producer lie above what was compacted: one, or more than are remembered."""
    settings = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.01}
    async with harness.manager(segment_bytes=2000, tail_cache_bytes=0) as manager:
        log = await harness.open(manager, **settings)
        for sequence in range(4):
            harness.append(log, b"x", key=b"overwritten", base_sequence=sequence, **PRODUCER)
        while len(log.store.files.segments) < 4:
            harness.append(log, b"y" * 300, key=b"overwritten")
            await log.flush()
        committed = log.log_end_offset
        log.advance_high_watermark(committed)
        await manager.maintenance.wait_idle()
        for sequence in range(4, 4 + beyond):
            harness.append(log, b"z", key=b"new", base_sequence=sequence, **PRODUCER)
        await log.flush()
        await manager.clean()
        assert b"x" not in [value for _, value in await harness.read_all(log)]
        await log.truncate_to(committed)
        assert producer_state(log) == (3, 3)
    if restart:
        async with harness.manager() as manager:
            assert producer_state(await harness.open(manager, **settings)) == (3, 3)


async def test_the_size_follows_what_is_taken_away(harness: Any) -> None:
    async with harness.manager(segment_bytes=1500) as manager:
        log = await harness.open(manager)
        for _ in range(30):
            harness.append(log, b"x" * 200)
            await log.flush()
        await manager.maintenance.wait_idle()
        size = log.size_bytes // 30
        assert log.size_bytes == 30 * size
        await log.truncate_to(24)
        assert 24 * size <= log.size_bytes < 30 * size
        log.advance_high_watermark(24)
        before = log.size_bytes
        await log.advance_log_start_offset(20)
        assert 4 * size <= log.size_bytes < before
        before = log.size_bytes
        disk_size = log.size_bytes
    async with harness.manager() as manager:
        assert (await harness.open(manager)).size_bytes == disk_size


async def test_the_size_follows_compaction(harness: Any) -> None:
    async with harness.manager(segment_bytes=1500, tail_cache_bytes=0) as manager:
        log = await harness.open(manager, compact=True, delete=False, min_cleanable_dirty_ratio=0.01)
        for _ in range(30):
            harness.append(log, b"x" * 200, key=b"k")
            await log.flush()
        before = log.size_bytes
        log.advance_high_watermark(30)
        await manager.maintenance.wait_idle()
        await manager.clean()
        held = sum([len(value or b"") for _, value in await harness.read_all(log)])
        assert held <= log.size_bytes < before / 2
