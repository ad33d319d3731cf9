"""The range after a read is in the page cache before anybody asks for it, and never stands in the way of the truth."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.kproto.records import iter_batches, iter_records
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.reading.plan import ReadPlan, read

COUNT = 200


class Reads:
    """Counts what is run in a worker thread, by name."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def run_blocking(self, function: Callable[[], Any]) -> Any:
        self.calls.append(getattr(function, "func", function).__name__)
        await trio.lowlevel.checkpoint()
        return function()

    def cold(self) -> int:
        return self.calls.count("_run_all")


def make(reads: Reads, **settings: Any) -> LogManager:
    disk = SimulatedDisk(3, cold_probability=1.0)
    config = StorageConfig(tail_cache_bytes=0, run_bytes=600, **settings)
    return LogManager(disk, "/data", config, ManualClock(), run_blocking=reads.run_blocking)


async def fill(harness: Any, manager: LogManager, partitions: int = 1, *, is_sorted: bool) -> list[PartitionLog]:
    logs = [await manager.open_log(harness.topic_id, "topic", number, LogConfig()) for number in range(partitions)]
    for number in range(COUNT):
        for log in logs:
            harness.append(log, b"%d" % number + b"x" * 100)
        await logs[0].flush()
    await manager.maintenance.wait_idle()
    if is_sorted:
        await manager.clean()
    return logs


async def next_read(log: PartitionLog, offset: int, max_bytes: int = 2000) -> int:
    plan = log.plan_read(offset, max_bytes=max_bytes, end_offset=log.flushed_end_offset, min_one_batch=True)
    await read([plan])
    assert plan.error is None, plan.error
    assert plan.records is not None
    plan.release()
    await trio.testing.wait_all_tasks_blocked()
    return plan.next_offset


@pytest.mark.parametrize("segment_bytes", [5_000, 1 << 20])
@pytest.mark.parametrize("is_sorted", [False, True])
async def test_only_the_first_two_reads_wait_for_the_device(harness: Any, segment_bytes: int, is_sorted: bool) -> None:
    reads = Reads()
    manager = make(reads, segment_bytes=segment_bytes)
    async with manager.run():
        (log,) = await fill(harness, manager, is_sorted=is_sorted)
        reads.calls.clear()
        offset, count = 0, 0
        while offset < log.flushed_end_offset:
            offset = await next_read(log, offset)
            count += 1
        assert count > 12
        assert reads.cold() <= 3


async def test_what_is_read_ahead_is_the_same(harness: Any) -> None:
    reads = Reads()
    manager = make(reads, segment_bytes=9_000)
    async with manager.run():
        logs = await fill(harness, manager, 3, is_sorted=True)
        for log in logs:
            expected = [(number, b"%d" % number + b"x" * 100) for number in range(COUNT)]
            found: list[tuple[int, bytes | None]] = []
            while len(found) < COUNT:
                found += await harness.read_records(log, len(found), max_bytes=1500)
            assert found == expected


async def test_one_that_reads_here_and_there_is_not_followed(harness: Any) -> None:
    reads = Reads()
    manager = make(reads, segment_bytes=9_000)
    async with manager.run():
        (log,) = await fill(harness, manager, is_sorted=True)
        reads.calls.clear()
        for offset in (150, 10, 120, 30, 90):
            await next_read(log, offset)
        assert "_look_at" not in reads.calls


async def test_a_truncation_takes_back_what_was_looked_up(harness: Any) -> None:
    reads = Reads()
    manager = make(reads, segment_bytes=9_000)
    async with manager.run():
        (log,) = await fill(harness, manager, is_sorted=False)
        offset = await next_read(log, await next_read(log, 0))
        await log.truncate_to(offset + 2)
        harness.append(log, b"after the cut")
        await log.flush()
        assert await harness.read_records(log, offset) == [
            (offset, b"%d" % offset + b"x" * 100),
            (offset + 1, b"%d" % (offset + 1) + b"x" * 100),
            (offset + 2, b"after the cut"),
        ]


async def test_what_was_looked_up_may_end_in_a_gap(harness: Any) -> None:
    """A leader's compaction left the gap, and a truncation took what followed it."""
    manager = make(Reads(), segment_bytes=9_000)
    async with manager.run():
        (log,) = await fill(harness, manager, is_sorted=False)
        after_gap = bytes(harness.batch([b"b", b"c"], base_offset=COUNT + 5))
        batches = bytes(harness.batch([b"a"], base_offset=COUNT)) + after_gap
        log.append_as_follower(memoryview(bytearray(batches)), None, now_ms=0)
        await log.flush()
        await log.truncate_to(COUNT + 6)
        offset = COUNT - 20
        while offset <= COUNT:
            offset = await next_read(log, offset, max_bytes=400)
        harness.append(log, b"after the gap")
        await log.flush()
        assert await harness.read_records(log, offset) == [(COUNT + 6, b"after the gap")]


async def test_a_rewritten_segment_takes_back_what_was_looked_up(harness: Any) -> None:
    reads = Reads()
    manager = make(reads, segment_bytes=9_000)
    async with manager.run():
        (log,) = await fill(harness, manager, is_sorted=False)
        offset = await next_read(log, await next_read(log, 0))
        await manager.clean()
        found = await harness.read_records(log, offset, max_bytes=1500)
        assert found[0] == (offset, b"%d" % offset + b"x" * 100)


async def test_a_failure_to_look_ahead_fails_nobody(harness: Any) -> None:
    reads = Reads()
    manager = make(reads, segment_bytes=9_000)
    async with manager.run():
        (log,) = await fill(harness, manager, is_sorted=True)
        disk = manager.context.disk
        assert isinstance(disk, SimulatedDisk)
        fault = disk.faults.add(Fault(FaultKind.ERROR, frozenset({"advise_willneed"}), errno=errno.EIO, count=None))
        offset = 0
        while offset < log.flushed_end_offset:
            offset = await next_read(log, offset)
        assert fault.struck > 1
        assert log.store.error is None


async def test_no_more_logs_are_followed_than_the_limit(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.reading.read_ahead._FOLLOWED_LOGS", 2)
    monkeypatch.setattr("ottla.storage.reading.prefetch._HELD_BYTES", 0)
    reads = Reads()
    manager = make(reads, segment_bytes=1 << 20)
    async with manager.run():
        logs = await fill(harness, manager, 4, is_sorted=False)
        offsets = [await next_read(log, 0) for log in logs]
        reads.calls.clear()
        assert len(manager.reader.read_ahead) == 2
        await next_read(logs[0], offsets[0])
        assert "_look_at" not in reads.calls
        await next_read(logs[3], offsets[3])
        assert "_look_at" in reads.calls


async def test_no_more_places_are_kept_than_the_limit(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.reading.read_ahead._KNOWN_EXTENTS", 30)
    manager = make(Reads(), segment_bytes=1 << 20)
    async with manager.run():
        logs = await fill(harness, manager, 4, is_sorted=False)
        offsets = dict.fromkeys(logs, 0)
        for _ in range(4):
            for log in logs:
                offsets[log] = await next_read(log, offsets[log])
                known = [followed.extents for followed in manager.reader.read_ahead._followed.values()]
                assert sum(map(len, known)) <= 30
                assert manager.reader.read_ahead._extent_count == sum(map(len, known))
        for log in logs:
            manager.reader.read_ahead.forget(log)
        assert manager.reader.read_ahead._extent_count == 0


class Busy:
    """Many partitions that are written, cleaned and read at once."""

    def __init__(self, harness: Any, manager: LogManager, logs: list[PartitionLog]) -> None:
        self.harness = harness
        self.manager = manager
        self.logs = logs
        self.is_written = False
        self.rounds = 0

    async def write(self) -> None:
        for number in range(36):
            for log in self.logs:
                await log.wait_for_room()
                self.harness.append(log, b"%d" % number + b"x" * 60, key=b"%d" % (number % 7))
            await self.logs[0].flush()
            for log in self.logs:
                log.advance_high_watermark(log.flushed_end_offset)
            if number % 6 == 5 and not self.logs[0].config.compact:
                await self.logs[number % len(self.logs)].advance_log_start_offset(number // 2)
            if number % 3 == 0:
                await self.manager.clean()
        self.is_written = True

    async def follow(self) -> None:
        offsets = dict.fromkeys(self.logs, 0)
        while not self.is_written or any(offset < log.flushed_end_offset for log, offset in offsets.items()):
            await trio.lowlevel.checkpoint()
            plans = [
                log.plan_read(
                    max(offset, log.log_start_offset),
                    max_bytes=500,
                    end_offset=log.flushed_end_offset,
                    min_one_batch=True,
                )
                for log, offset in offsets.items()
            ]
            await read(plans)
            for log, plan in zip(self.logs, plans, strict=True):
                self.check(plan)
                offsets[log] = plan.next_offset
            self.rounds += 1

    def check(self, plan: ReadPlan) -> None:
        assert plan.error is None, plan.error
        assert plan.records is not None
        content = plan.records.to_bytes()
        plan.release()
        for pos, header in iter_batches(content):
            for record in iter_records(content, pos, header):
                assert (record.value or b"").startswith(b"%dx" % record.offset)


@pytest.mark.parametrize("compact", [False, True])
async def test_readers_and_the_cleaner_at_once(harness: Any, compact: bool) -> None:
    """Segments are sealed, rewritten, merged and removed under readers of many partitions, who see nothing of it."""
    manager = make(Reads(), segment_bytes=3_000, rewrite_dead_ratio=0.01, fd_cache_capacity=2)
    settings: dict[str, Any] = {"compact": compact, "delete": False, "min_cleanable_dirty_ratio": 0.01}
    async with manager.run():
        logs = [
            await manager.open_log(harness.topic_id, "topic", number, LogConfig(**settings)) for number in range(40)
        ]
        busy = Busy(harness, manager, logs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy.write)
            for _ in range(2):
                nursery.start_soon(busy.follow)
        assert busy.rounds > 20
        assert any(segment.generation for segment in logs[0].store.files.segments)


async def test_a_fetch_of_more_logs_than_are_followed(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.reading.read_ahead._FOLLOWED_LOGS", 2)
    manager = make(Reads(), segment_bytes=1 << 20)
    async with manager.run():
        logs = await fill(harness, manager, 5, is_sorted=False)
        offsets = dict.fromkeys(logs, 0)
        while any(offset < log.flushed_end_offset for log, offset in offsets.items()):
            plans = [
                log.plan_read(offset, max_bytes=2000, end_offset=log.flushed_end_offset, min_one_batch=True)
                for log, offset in offsets.items()
            ]
            await read(plans)
            for log, plan in zip(logs, plans, strict=True):
                assert plan.error is None, plan.error
                assert plan.records is not None
                plan.release()
                offsets[log] = plan.next_offset
            assert len(manager.reader.read_ahead) <= 2


async def test_a_look_right_after_a_sealing_skips_nothing(harness: Any) -> None:
    """Two reads that began before a segment was sealed end after it, when its place is not looked up yet."""
    manager = make(Reads())
    async with manager.run():
        log = await manager.open_log(harness.topic_id, "topic", 0, LogConfig(segment_ms=1000))
        for number in range(6):
            harness.append(log, b"%d" % number + b"x" * 100)
            await log.flush()
        plans = [
            log.plan_read(offset, max_bytes=1, end_offset=log.flushed_end_offset, min_one_batch=True)
            for offset in range(2)
        ]
        await read(plans)
        manager.reader.forget(log)
        assert isinstance(manager.context.clock, ManualClock)
        manager.context.clock.advance(1000)
        harness.append(log, b"in the next segment")
        await log.flush()
        await manager.maintenance.wait_idle()
        assert log.store.files.segments[0].is_sealed
        assert not log.places.are_known
        ahead = manager.reader.read_ahead
        assert not ahead.on_read(plans[0], was_cold=True)
        assert ahead.on_read(plans[1], was_cold=True)
        ahead.look([plans[1]])
        await trio.testing.wait_all_tasks_blocked()
        for plan in plans:
            plan.release()
        assert await harness.read_records(log, 2, max_bytes=1) == [(2, b"2" + b"x" * 100)]
