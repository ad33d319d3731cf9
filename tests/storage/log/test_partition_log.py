"""Append, flush, read, restart: one partition's log through the log manager on a real disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.records import EndTxnMarker, build_end_txn_marker
from ottla.runtime.stages import go_on
from ottla.storage.config import LogConfig
from ottla.storage.disk.disk import Handle
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import (
    ChecksTakeLongError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    UnexpectedAppendOffsetError,
)
from ottla.storage.log.partition_log import AppendOrigin
from ottla.storage.reading.plan import begin_read


async def test_append_flush_read_from_memory(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        info = harness.append(log, b"a", b"b")
        assert (info.base_offset, info.last_offset) == (0, 1)
        assert harness.append(log, b"c").base_offset == 2
        assert (log.log_end_offset, log.flushed_end_offset) == (3, 0)
        assert await harness.read_all(log) == []
        await log.flush()
        assert log.flushed_end_offset == 3
        assert await harness.read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_read_from_disk(harness: Any) -> None:
    async with harness.manager(tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        for number in range(50):
            harness.append(log, b"%d" % number)
            if number % 7 == 0:
                await log.flush()
        await log.flush()
        assert not log._tail
        assert await harness.read_all(log) == [(n, b"%d" % n) for n in range(50)]
        assert [offset for offset, _ in await harness.read_records(log, 17, max_bytes=200)] == [17, 18]
        assert await harness.read_records(log, 17, max_bytes=1) == [(17, b"17")]
        assert [offset for offset, _ in await harness.read_records(log, 40, end_offset=43)] == [40, 41, 42]


async def test_clean_restart(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        harness.append(log, b"a", b"b", leader_epoch=3)
    async with harness.manager() as manager:
        assert manager.node_dir.was_clean
        log = await harness.open(manager)
        assert (log.log_start_offset, log.log_end_offset, log.flushed_end_offset) == (0, 2, 2)
        assert log.latest_epoch == 3
        harness.append(log, b"c", leader_epoch=4)
        await log.flush()
        assert await harness.read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert log.end_offset_for_epoch(3) == (3, 2)


async def test_many_partitions_share_a_file(harness: Any) -> None:
    async with harness.manager(tail_cache_bytes=0) as manager:
        logs = [await harness.open(manager, partition) for partition in range(200)]
        for turn in range(3):
            for partition, log in enumerate(logs):
                harness.append(log, b"%d-%d" % (partition, turn))
            await logs[0].flush()
        store = logs[0].store
        assert all(log.store is store for log in logs)
        assert len(store.files.segments) == 1
        for partition, log in enumerate(logs):
            assert await harness.read_all(log) == [(turn, b"%d-%d" % (partition, turn)) for turn in range(3)]


async def test_rolling_seals_and_reads_across_segments(harness: Any) -> None:
    async with harness.manager(tail_cache_bytes=0, segment_bytes=2000) as manager:
        logs = [await harness.open(manager, partition) for partition in range(3)]
        for number in range(60):
            harness.append(logs[number % 3], b"%d" % number)
            await logs[0].flush()
        await manager.maintenance.wait_idle()
        files = logs[0].store.files
        assert len(files.segments) > 3
        assert all(segment.is_sealed for segment in files.segments[:-1])
        for partition, log in enumerate(logs):
            expected = [(n // 3, b"%d" % n) for n in range(60) if n % 3 == partition]
            assert await harness.read_all(log) == expected
    async with harness.manager(tail_cache_bytes=0, segment_bytes=2000) as manager:
        log = await harness.open(manager, 1)
        assert await harness.read_all(log) == [(n // 3, b"%d" % n) for n in range(60) if n % 3 == 1]


@pytest.mark.parametrize("segment_bytes", [1 << 30, 1000])
async def test_truncation_survives_restart(harness: Any, segment_bytes: int) -> None:
    settings = {"tail_cache_bytes": 0, "segment_bytes": segment_bytes}
    async with harness.manager(**settings) as manager:
        log = await harness.open(manager)
        for number in range(30):
            harness.append(log, b"old%d" % number, leader_epoch=number // 10)
            await log.flush()
        await log.truncate_to(15)
        assert (log.log_end_offset, log.flushed_end_offset, log.high_watermark) == (15, 15, 0)
        assert log.latest_epoch == 1
        expected = [(n, b"old%d" % n) for n in range(15)]
        assert await harness.read_all(log) == expected
        for number in range(15, 20):
            harness.append(log, b"new%d" % number, leader_epoch=7)
        await log.flush()
        expected += [(n, b"new%d" % n) for n in range(15, 20)]
        assert await harness.read_all(log) == expected
    async with harness.manager(**settings) as manager:
        log = await harness.open(manager)
        assert await harness.read_all(log) == expected
        assert log.latest_epoch == 7


async def test_truncate_fully_and_start_at(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        harness.append(log, b"a", b"b")
        await log.truncate_fully_and_start_at(100)
        assert (log.log_start_offset, log.log_end_offset) == (100, 100)
        assert harness.append(log, b"c").base_offset == 100
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert (log.log_start_offset, log.log_end_offset) == (100, 101)
        assert await harness.read_all(log) == [(100, b"c")]


async def test_log_start_moves(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        for number in range(10):
            harness.append(log, b"%d" % number)
        await log.flush()
        with pytest.raises(OffsetOutOfRangeError):
            await log.advance_log_start_offset(6)
        log.advance_high_watermark(10)
        await log.advance_log_start_offset(6)
        with pytest.raises(OffsetOutOfRangeError):
            log.plan_read(5, max_bytes=100, end_offset=10, min_one_batch=True)
        assert [offset for offset, _ in await harness.read_all(log)] == [6, 7, 8, 9]
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert log.log_start_offset == 6


async def test_deletion_returns_the_space(harness: Any, tmp_path: Any) -> None:
    async with harness.manager() as manager:
        logs = [await harness.open(manager, partition) for partition in range(2)]
        for log in logs:
            harness.append(log, b"x")
        await logs[0].flush()
        await manager.delete_logs(harness.topic_id, [0])
        assert manager.get_log(harness.topic_id, 0) is None
        assert await harness.read_all(logs[1]) == [(0, b"x")]
        again = await harness.open(manager, 0)
        assert again.log_end_offset == 0
        harness.append(again, b"y")
        await again.flush()
        assert await harness.read_all(again) == [(0, b"y")]
    async with harness.manager() as manager:
        assert await harness.read_all(await harness.open(manager, 0)) == [(0, b"y")]
        assert await harness.read_all(await harness.open(manager, 1)) == [(0, b"x")]
        await manager.delete_logs(harness.topic_id, [0])
        await manager.delete_logs(harness.topic_id, [1])
        assert [path.name for path in (tmp_path / "node-0").iterdir() if path.is_dir()] == []


async def test_a_topics_partitions_are_deleted_in_one_write(harness: Any) -> None:
    async with harness.manager() as manager:
        logs = [await harness.open(manager, partition) for partition in range(60)]
        for log in logs:
            harness.append(log, b"x")
        await logs[0].flush()
        store = logs[0].store
        sequence = store.files.next_sequence
        await manager.delete_logs(harness.topic_id, range(50))
        assert store.files.next_sequence == sequence + 1
        assert [log.partition for log in manager.logs()] == list(range(50, 60))
    async with harness.manager() as manager:
        reopened = [await harness.open(manager, partition) for partition in range(60)]
        assert [log.log_end_offset for log in reopened] == [0] * 50 + [1] * 10


async def test_deletion_returns_the_memory(harness: Any) -> None:
    """What a deleted topic left for tail reads goes with it; other topics' stays."""
    async with harness.manager() as manager:
        kept = await manager.open_log(UUID(int=5), "kept", 0, LogConfig())
        harness.append(kept, b"k" * 5_000)
        await kept.flush()
        tail = manager.context.tail
        size_bytes = tail.size_bytes
        for partition in range(3):
            log = await harness.open(manager, partition)
            harness.append(log, b"x" * 5_000)
            await log.flush()
        assert tail.size_bytes > size_bytes + 15_000
        await manager.delete_logs(harness.topic_id, range(3))
        assert tail.size_bytes == size_bytes
        assert [log.topic for log in manager.logs()] == ["kept"]
        assert await harness.read_all(kept) == [(0, b"k" * 5_000)]


async def test_follower_takes_the_leaders_offsets(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        batches = bytes(harness.batch([b"a", b"b"], base_offset=0, leader_epoch=5))
        batches += bytes(harness.batch([b"c"], base_offset=10, leader_epoch=6))
        cut = batches + bytes(harness.batch([b"d"], base_offset=11))[:-3]
        info = log.append_as_follower(memoryview(bytearray(cut)), None, now_ms=0)
        assert (info.base_offset, info.last_offset) == (0, 10)
        await log.flush()
        assert await harness.read_all(log) == [(0, b"a"), (1, b"b"), (10, b"c")]
        assert log.latest_epoch == 6
        with pytest.raises(UnexpectedAppendOffsetError):
            log.append_as_follower(memoryview(bytearray(batches)), None, now_ms=0)


async def test_duplicates_and_gaps_of_an_idempotent_producer(harness: Any) -> None:
    producer = {"producer_id": 9, "producer_epoch": 0}
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert harness.append(log, b"a", b"b", base_sequence=0, **producer).base_offset == 0
        again = harness.append(log, b"a", b"b", base_sequence=0, **producer)
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == (0, 1)
        with pytest.raises(OutOfOrderSequenceError):
            harness.append(log, b"d", base_sequence=3, **producer)
        assert log.log_end_offset == 2
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert harness.append(log, b"a", b"b", base_sequence=0, **producer).duplicate
        assert harness.append(log, b"c", base_sequence=2, **producer).base_offset == 2


async def test_refused_appends_change_nothing(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager, max_message_bytes=200)
        now = harness.clock.time_ms()

        def append(batch: memoryview) -> None:
            log.append_as_leader(batch, None, leader_epoch=0, now_ms=now)

        with pytest.raises(RecordTooLargeError):
            append(harness.batch([b"x" * 300]))
        flipped = harness.batch([b"abc"])
        flipped[-2] ^= 1
        with pytest.raises(CorruptBatchError):
            append(flipped)
        with pytest.raises(CorruptBatchError):
            append(harness.batch([b"abc"])[:-1])
        with pytest.raises(InvalidRecordError):
            append(memoryview(bytearray(bytes(harness.batch([b"a"])) * 2)))
        with pytest.raises(InvalidRecordError):
            append(harness.batch([b"a"], base_offset=1))
        with pytest.raises(InvalidTimestampError):
            append(harness.batch([b"a"], timestamp_ms=now + 3_600_001))
        log.set_config(type(log.config)(compact=True))
        with pytest.raises(InvalidRecordError):
            append(harness.batch([b"a"]))
        assert log.log_end_offset == 0
        assert not log.store.writer.active.has_work


async def test_offsets_by_timestamp(harness: Any) -> None:
    times = [100, 300, 200, 500, 400]
    async with harness.manager(tail_cache_bytes=0, segment_bytes=300) as manager:
        log = await harness.open(manager)
        assert await log.max_timestamp_offset() is None
        for time in times:
            harness.append(log, b"x", timestamp_ms=time)
            await log.flush()
        await manager.maintenance.wait_idle()

        async def find(timestamp_ms: int) -> int | None:
            found = await log.offset_for_timestamp(timestamp_ms)
            return found.offset if found is not None else None

        assert [await find(t) for t in (1, 100, 101, 250, 301, 450, 501)] == [0, 0, 1, 1, 3, 3, None]
        latest = await log.max_timestamp_offset()
        assert latest is not None
        assert (latest.timestamp_ms, latest.offset) == (500, 3)


async def test_log_append_time_and_recompression(harness: Any) -> None:
    from ottla.storage.config import TimestampType

    async with harness.manager() as manager:
        log = await harness.open(manager, message_timestamp_type=TimestampType.LOG_APPEND_TIME, compression_type="gzip")
        info = harness.append(log, b"a" * 500, timestamp_ms=5)
        assert info.log_append_time_ms == harness.clock.time_ms()
        await log.flush()
        assert await harness.read_all(log) == [(0, b"a" * 500)]
        assert log.size_bytes < 300
        found = await log.offset_for_timestamp(harness.clock.time_ms())
        assert found is not None
        assert found.offset == 0


async def test_a_large_first_batch_is_read_whole(harness: Any) -> None:
    async with harness.manager(tail_cache_bytes=0, run_bytes=1000) as manager:
        log = await harness.open(manager)
        harness.append(log, b"x" * 300_000)
        harness.append(log, b"y")
        await log.flush()
        assert [len(value) for _, value in await harness.read_records(log, 0, max_bytes=10)] == [300_000]
        plan = log.plan_read(0, max_bytes=10, end_offset=2, min_one_batch=False)
        from ottla.storage.reading.plan import read

        await read([plan])
        assert plan.records is not None
        assert plan.records.size_bytes == 0
        plan.release()


@pytest.mark.parametrize("tail_cache_bytes", [0, 1 << 20])
async def test_a_truncation_inside_a_batch_leaves_a_hole_that_readers_pass(harness: Any, tail_cache_bytes: int) -> None:
    async with harness.manager(tail_cache_bytes=tail_cache_bytes) as manager:
        log = await harness.open(manager)
        harness.append(log, b"a" * 243, b"b" * 188, b"c" * 181)
        await log.truncate_to(1)
        assert log.log_end_offset == 1
        harness.append(log, b"d")
        await log.flush()
        assert await harness.read_records(log, 0, max_bytes=700) == [(1, b"d")]
        assert await harness.read_records(log, 0, max_bytes=1) == [(1, b"d")]


@pytest.mark.parametrize("is_commit", [False, True])
async def test_a_transaction_that_ended_before_a_crash_is_decided_after_it(harness: Any, is_commit: bool) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        harness.append(log, b"a", producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True)
        marker = build_end_txn_marker(EndTxnMarker(4, 0, 0, is_commit=is_commit), timestamp_ms=1)
        log.append_as_leader(
            memoryview(bytearray(marker)), None, leader_epoch=0, origin=AppendOrigin.COORDINATOR, now_ms=1
        )
        await log.flush()
        assert log.last_stable_offset == 0
        disk = disk.crash()
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        assert (log.high_watermark, log.last_stable_offset) == (2, 2)
        assert len(log.aborted_transactions(0, 2)) == (not is_commit)


async def test_what_is_deleted_while_it_is_read_stays_aborted(harness: Any) -> None:
    """A reader of committed records must skip what it has got, wherever the log begins by then."""

    class ColdDisk(SimulatedDisk):
        def preadv(self, handle: Handle, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
            return 0 if nowait else super().preadv(handle, buffers, position)

    async with harness.manager(ColdDisk(1), tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        for number, value in enumerate((b"aborted", b"committed")):
            harness.append(log, value, producer_id=4, producer_epoch=0, base_sequence=number, is_transactional=True)
            marker = build_end_txn_marker(EndTxnMarker(4, 0, 0, is_commit=bool(number)), timestamp_ms=1)
            log.append_as_leader(
                memoryview(bytearray(marker)), None, leader_epoch=0, origin=AppendOrigin.COORDINATOR, now_ms=1
            )
            await log.flush()
        log.advance_high_watermark(4)
        plan = log.plan_read(0, max_bytes=1_000, end_offset=4, min_one_batch=True)
        stages = begin_read([plan])
        wait = next(stages)  # for a worker thread
        await log.advance_log_start_offset(2)
        await go_on(stages, wait)
        assert plan.records is not None
        assert b"aborted" in plan.records.to_bytes()
        assert [(each.producer_id, each.first_offset) for each in plan.aborted_transactions(4)] == [(4, 0)]
        assert len(log.aborted_transactions(0, 4)) == 0
        plan.release()


async def test_a_block_that_displaces_many_lets_others_run_meanwhile(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.runtime.time_slice.SLICE_SECONDS", -1.0)
    async with harness.manager() as manager:
        log = await harness.open(manager)
        tail = manager.context.tail
        for number in range(40):
            harness.append(log, b"%d" % number)
            await log.flush()
        await wait_all_tasks_blocked()
        assert len(log._tail) == 40
        tail.limit_bytes = 150_000 + tail.size_bytes // 4
        harness.append(log, b"x" * 150_000)
        await log.flush()
        kept = len(log._tail)
        await wait_all_tasks_blocked()
        assert 3 < len(log._tail) < kept - 3
        assert tail.size_bytes <= tail.limit_bytes
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(41))


async def test_what_the_tail_has_forgotten_is_read_from_the_file(harness: Any) -> None:
    async with harness.manager(tail_cache_bytes=100_000) as manager:
        log = await harness.open(manager)
        harness.append(log, b"makes the file")
        await log.flush()
        for number in range(1, 400):
            harness.append(log, b"%d" % number)
            manager.context.turn.end()
            assert log.flushed_end_offset == number + 1
        in_memory = len(manager.context.tail)
        assert 64 < in_memory < 100
        for offset in range(400):
            plan = log.plan_read(offset, max_bytes=1, end_offset=400, min_one_batch=True)
            assert plan.is_complete == (offset >= 400 - in_memory)
            plan.release()
            assert (await harness.read_records(log, offset, max_bytes=1))[0][0] == offset


async def test_the_last_stable_offset_is_not_below_the_start_of_the_log(harness: Any) -> None:
    """As in Kafka's UnifiedLog.maybeIncrementFirstUnstableOffset: it is where a read_committed consumer would begin."""
    async with harness.manager() as manager:
        log = await harness.open(manager)
        harness.append(log, b"a", producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True)
        harness.append(log, b"b")
        await log.flush()
        log.advance_high_watermark(2)
        assert log.last_stable_offset == 0
        await log.advance_log_start_offset(1)
        assert log.last_stable_offset == 1


async def test_what_was_checked_ahead_is_appended_as_it_was_checked(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager, compression_type="gzip")
        batch = harness.batch([b"x" * 5000] * 3)
        checked = await log.check_ahead(batch, now_ms=harness.clock.time_ms())
        assert log.log_end_offset == 0
        log.append_as_leader(batch, None, leader_epoch=0, now_ms=harness.clock.time_ms(), checked=checked)
        await log.flush()
        assert log.size_bytes < 1000
        assert await harness.read_all(log) == [(offset, b"x" * 5000) for offset in range(3)]


async def test_what_was_checked_under_other_settings_is_checked_again(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        batch = harness.batch([b"x" * 500])
        checked = await log.check_ahead(batch, now_ms=harness.clock.time_ms())
        log.set_config(LogConfig(max_message_bytes=100))
        with pytest.raises(RecordTooLargeError):
            log.append_as_leader(batch, None, leader_epoch=0, now_ms=harness.clock.time_ms(), checked=checked)


async def test_check_ahead_refuses_as_an_append_does(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager, compact=True)
        with pytest.raises(InvalidRecordError):
            await log.check_ahead(harness.batch([b"no key"]), now_ms=harness.clock.time_ms())


async def test_an_append_does_not_begin_what_takes_long(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager, compact=True)
        batch = harness.batch([b"x" * 5000] * 3, key=b"k")
        now_ms = harness.clock.time_ms()
        with pytest.raises(ChecksTakeLongError):
            log.append_as_leader(batch, None, leader_epoch=0, now_ms=now_ms)
        assert log.log_end_offset == 0
        checked = await log.check_ahead(batch, now_ms=now_ms)
        assert log.append_as_leader(batch, None, leader_epoch=0, now_ms=now_ms, checked=checked).last_offset == 2
