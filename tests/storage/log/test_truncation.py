"""What a truncation takes away and what it must leave: producers, also of a compacted log, and the log's size."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest
import trio

from ottla.storage.config import StorageConfig
from ottla.storage.errors import LogClosedError, OutOfOrderSequenceError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.upkeep.reclaim import keep_map, rewrite_segments
from tests.storage.held_disk import HeldDisk, until

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


@pytest.mark.parametrize("way", ["truncate", "restart"])
async def test_a_truncation_that_is_written_to_a_new_segment_outlives_its_rewriting(harness: Any, way: str) -> None:
    """Also where the checkpoint and the indexes are lost, so that the blocks alone tell of it."""
    async with harness.manager(segment_bytes=2000) as manager:
        log, other = [await harness.open(manager, partition, segment_ms=1000) for partition in range(2)]
        for number in range(5):
            harness.append(log, b"%d" % number)
            await log.flush()
        # The next block begins a segment.
        harness.clock.advance(1000)
        await (log.truncate_to(3) if way == "truncate" else log.truncate_fully_and_start_at(8))
        _, note = log.store.files.segments
        for _ in range(20):
            harness.append(other, b"x" * 300)
            await other.flush()
        other.advance_high_watermark(other.flushed_end_offset)
        await other.advance_log_start_offset(other.flushed_end_offset)
        await harness.settle()
        await rewrite_segments(log.store, [note], await keep_map(log.store))
        assert note not in log.store.files.segments
        directory = log.store.files.directory
    for name in os.listdir(directory):
        if not name.endswith(".data"):
            os.unlink(os.path.join(directory, name))
    async with harness.manager() as manager:
        log = await harness.open(manager, 0)
        expected = (0, 3) if way == "truncate" else (8, 8)
        assert (log.log_start_offset, log.log_end_offset) == expected


@pytest.mark.parametrize("tail_cache_bytes", [0, 1 << 20])
async def test_nothing_is_read_in_a_gap_at_the_end(harness: Any, tail_cache_bytes: int) -> None:
    """A follower's leader has compacted its log; where the follower's ends it has no record."""
    async with harness.manager(tail_cache_bytes=tail_cache_bytes) as manager:
        log = await harness.open(manager)
        for base_offset in (0, 3, 9):
            batch = harness.batch([b"%d" % base_offset], base_offset=base_offset)
            log.append_as_follower(batch, None, now_ms=harness.clock.time_ms())
            await log.flush()
        await log.truncate_to(7)
        assert [await harness.read_records(log, offset) for offset in (1, 3, 4, 6)] == [
            [(3, b"3")],
            [(3, b"3")],
            [],
            [],
        ]
        records, following = await log.read_batches(4, 7)
        assert (records.size_bytes, following) == (0, 7)


async def test_the_start_moves_while_producers_are_read_anew(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.reading.reader._SCAN_BYTES", 100)
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(tail_cache_bytes=0, inline_read_bytes=0), harness.clock)
    async with manager.run(), trio.open_nursery() as nursery:
        log = await harness.open(manager)
        for sequence in range(8):
            harness.append(log, b"x", base_sequence=sequence, **PRODUCER)
            await log.flush()
        disk.hold("preadv")
        nursery.start_soon(log.truncate_to, 3)
        await disk.wait_until_held()
        log.advance_high_watermark(3)
        log.move_log_start(2)
        disk.let_go()
        await until(lambda: not log.store.lock.locked())
        assert log.store.error is None
        assert producer_state(log) == (3, 2)


@pytest.mark.parametrize("way", ["deleted", "cancelled"])
async def test_a_truncation_that_is_given_up_changes_nothing(
    harness: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Its producers are read before anything changes: a deletion that fails or is undone leaves them true."""
    monkeypatch.setattr("ottla.storage.reading.reader._SCAN_BYTES", 100)
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(tail_cache_bytes=0, inline_read_bytes=0), harness.clock)
    async with manager.run():
        log = await harness.open(manager)
        for sequence in range(8):
            harness.append(log, b"x", base_sequence=sequence, **PRODUCER)
            await log.flush()
        gives_up = trio.CancelScope()

        async def truncate() -> None:
            with gives_up, suppress(LogClosedError):
                await log.truncate_to(3)
                pytest.fail("it was not given up")

        disk.hold("preadv")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(truncate)
            await disk.wait_until_held()
            if way == "deleted":
                log.close()
            else:
                gives_up.cancel()
            disk.let_go()
        log.reopen()
        assert log.log_end_offset == 8
        assert producer_state(log) == (3, 7)
        assert harness.append(log, b"x", base_sequence=8, **PRODUCER).base_offset == 8
        await log.truncate_to(3)
        assert log.log_end_offset == 3
        assert producer_state(log) == (3, 2)


@pytest.mark.parametrize("without_indexes", [False, True])
async def test_a_log_that_is_cut_below_its_start_is_empty_and_goes_on_there(
    harness: Any, without_indexes: bool
) -> None:
    """Its leader's log ends there: a replica that ended anywhere else would ask for what nobody has."""
    async with harness.manager() as manager:
        log = await harness.open(manager)
        for number in range(8):
            harness.append(log, b"%d" % number)
        await log.flush()
        log.advance_high_watermark(6)
        await log.advance_log_start_offset(5)
        await log.truncate_to(3)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 3, 3)
        assert harness.append(log, b"new").base_offset == 3
        await log.flush()
        assert await harness.read_records(log, 3) == [(3, b"new")]
        directory = log.store.files.directory
    if without_indexes:
        for name in os.listdir(directory):
            if not name.endswith(".data"):
                os.unlink(os.path.join(directory, name))
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert (log.log_start_offset, log.log_end_offset) == (3, 4)
        assert await harness.read_records(log, 3) == [(3, b"new")]


async def test_retention_moves_the_start_beyond_where_a_truncation_cuts(harness: Any) -> None:
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(inline_write_bytes=0), harness.clock)
    async with manager.run(), trio.open_nursery() as nursery:
        log = await harness.open(manager)
        for number in range(8):
            harness.append(log, b"%d" % number)
        await log.flush()
        log.advance_high_watermark(8)
        disk.hold("pwritev")
        harness.append(log, b"8")
        nursery.start_soon(log.truncate_to, 3)
        await disk.wait_until_held()
        assert log.log_end_offset == 9
        log.move_log_start(6)
        disk.let_go()
        await until(lambda: not log.store.lock.locked())
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)
