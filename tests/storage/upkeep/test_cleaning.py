"""Retention, reclaiming and compaction: what goes, what stays, and that space comes back."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.kproto.records import EndTxnMarker, build_end_txn_marker
from ottla.storage.config import LogConfig
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log.partition_log import AppendOrigin, PartitionLog
from tests.storage.conftest import turns_during


def data_bytes(log: PartitionLog) -> int:
    folder = log.store.files.directory
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if name.endswith(".data"))


async def fill(harness: Any, log: PartitionLog, count: int, **options: Any) -> None:
    for number in range(count):
        harness.append(log, b"%d:" % number + b"x" * 200, timestamp_ms=harness.clock.time_ms(), **options)
        await log.flush()
    log.advance_high_watermark(log.log_end_offset)
    await harness.settle()


async def test_retention_by_size(harness: Any) -> None:
    async with harness.manager(segment_bytes=2000) as manager:
        log = await harness.open(manager, retention_bytes=3000)
        await fill(harness, log, 40)
        before = data_bytes(log)
        await manager.clean()
        assert 20 < log.log_start_offset < 39
        assert log.size_bytes >= 3000
        assert len(log.store.files.segments) < 6
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(log.log_start_offset, 40))
        start = log.log_start_offset
    assert data_bytes(log) < before / 2
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert (log.log_start_offset, log.log_end_offset) == (start, 40)


async def test_retention_by_time_stops_at_the_high_watermark(harness: Any) -> None:
    async with harness.manager(segment_bytes=2000) as manager:
        log = await harness.open(manager, retention_ms=1000)
        await fill(harness, log, 20)
        harness.clock.advance(1001)
        log.set_high_watermark(10)
        await manager.clean()
        assert 0 < log.log_start_offset <= 10
        log.advance_high_watermark(20)
        await manager.clean()
        assert log.log_start_offset == log.log_end_offset == 20
        assert harness.append(log, b"next").base_offset == 20


NO_TIMESTAMP = -1


async def test_records_without_a_timestamp_expire_by_the_time_of_their_file(harness: Any) -> None:
    """Also in the newest segment, into which nothing more is written."""
    async with harness.manager(SimulatedDisk(1, clock=harness.clock)) as manager:
        log = await harness.open(manager, retention_ms=1000)
        harness.append(log, b"first", timestamp_ms=NO_TIMESTAMP)
        await log.flush()
        harness.clock.advance(800)
        harness.append(log, b"second", timestamp_ms=NO_TIMESTAMP)
        await log.flush()
        log.advance_high_watermark(2)
        harness.clock.advance(1000)
        await manager.clean()
        assert log.log_start_offset == 0
        harness.clock.advance(1)
        await manager.clean()
        assert log.log_start_offset == 2


@pytest.mark.parametrize("is_killed", [False, True])
async def test_records_without_a_timestamp_expire_after_a_restart(harness: Any, is_killed: bool) -> None:
    disk = SimulatedDisk(1, clock=harness.clock)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager, retention_ms=1000)
        harness.append(log, b"v", timestamp_ms=NO_TIMESTAMP)
        await log.flush()
        harness.clock.advance(600)
        if is_killed:
            disk = disk.crash()
    async with harness.manager(disk) as manager:
        log = await harness.open(manager, retention_ms=1000)
        log.advance_high_watermark(1)
        harness.clock.advance(400)
        await manager.clean()
        assert log.log_start_offset == 0
        harness.clock.advance(1)
        await manager.clean()
        assert log.log_start_offset == 1


@pytest.mark.parametrize("interval_ms", [1000, 40_000])
async def test_retention_looks_as_often_as_it_is_told_to(harness: Any, interval_ms: int, autojump_clock: Any) -> None:
    """However long the cleaner waits between its own passes."""
    async with harness.manager(
        SimulatedDisk(1), retention_check_interval_ms=interval_ms, cleaner_backoff_ms=15_000
    ) as manager:
        log = await harness.open(manager, retention_ms=1000)
        # The first look is one interval after the start, or with the cleaner's first pass.
        await trio.sleep(max(interval_ms, 15_000) / 1000 + 0.1)
        for number in range(1, 5):
            await fill(harness, log, 1)
            harness.clock.advance(1001)
            await trio.sleep(interval_ms / 1000 - 0.2)
            assert log.log_start_offset == number - 1
            await trio.sleep(0.2)
            assert log.log_start_offset == number


@pytest.mark.parametrize("interval_ms", [1000, 400_000])
async def test_producers_expire_as_often_as_they_are_looked_for(
    harness: Any, interval_ms: int, autojump_clock: Any
) -> None:
    """However often retention looks, and however long the cleaner waits between its own passes."""
    settings = {"producer_id_expiration_ms": 1000, "producer_id_expiration_check_interval_ms": interval_ms}
    async with harness.manager(SimulatedDisk(1), retention_check_interval_ms=50_000, **settings) as manager:
        log = await harness.open(manager)
        harness.append(log, b"v", producer_id=7, producer_epoch=0, base_sequence=0)
        assert len(log.active_producers()) == 1
        harness.clock.advance(1001)
        first_look_s = max(interval_ms, 15_000) / 1000
        await trio.sleep(first_look_s - 0.1)
        assert len(log.active_producers()) == 1
        await trio.sleep(0.2)
        assert log.active_producers() == []


async def test_scattered_segments_are_sorted_by_partition(harness: Any) -> None:
    async with harness.manager(segment_bytes=100_000, tail_cache_bytes=0) as manager:
        logs = [await harness.open(manager, partition) for partition in range(20)]
        for turn in range(30):
            for log in logs:
                harness.append(log, b"%d" % turn + b"y" * 200)
            await logs[0].flush()
        await manager.maintenance.wait_idle()
        await manager.clean()
        files = logs[0].store.files
        sealed = [segment for segment in files.segments if segment.is_sealed]
        assert sealed
        assert all(segment.is_sorted and segment.generation == 1 for segment in sealed)
        for log in logs:
            assert [offset for offset, _ in await harness.read_all(log)] == list(range(30))
        generations = [segment.generation for segment in files.segments]
        await manager.clean()
        assert [segment.generation for segment in files.segments] == generations
    async with harness.manager() as manager:
        log = await harness.open(manager, 7)
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(30))


async def test_a_deleted_partition_leaves_the_shared_files(harness: Any) -> None:
    async with harness.manager(segment_bytes=5000) as manager:
        logs = [await harness.open(manager, partition) for partition in range(2)]
        for _ in range(40):
            harness.append(logs[0], b"x" * 300)
            harness.append(logs[1], b"y")
            await logs[0].flush()
        await manager.maintenance.wait_idle()
        before = data_bytes(logs[1])
        await manager.delete_logs(harness.topic_id, [0])
        await manager.clean()
        assert len(await harness.read_all(logs[1])) == 40
    assert data_bytes(logs[1]) < before / 2


async def test_compaction_keeps_the_latest_of_each_key(harness: Any) -> None:
    settings = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.01}
    async with harness.manager(segment_bytes=3000, tail_cache_bytes=0) as manager:
        log = await harness.open(manager, **settings)
        for number in range(60):
            harness.append(log, b"v%d" % number + b"." * 100, key=b"k%d" % (number % 5))
            await log.flush()
        log.advance_high_watermark(60)
        await manager.maintenance.wait_idle()
        sealed_end = log.store.files.segments[-1].tables[log.key].base_offset
        before = data_bytes(log)
        await manager.clean()
        assert log.first_dirty_offset == sealed_end
        offsets = [offset for offset, _ in await harness.read_all(log)]
        assert offsets == list(range(sealed_end - 5, 60))
        assert (log.log_start_offset, log.log_end_offset) == (0, 60)
        assert (await harness.read_records(log, 3))[0][0] == sealed_end - 5
    assert data_bytes(log) < before
    async with harness.manager() as manager:
        log = await harness.open(manager, **settings)
        assert [offset for offset, _ in await harness.read_all(log)] == offsets
        assert log.first_dirty_offset == sealed_end


async def test_compaction_drops_aborted_records(harness: Any) -> None:
    settings = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.01}
    async with harness.manager(segment_bytes=1500, tail_cache_bytes=0) as manager:
        log = await harness.open(manager, **settings)
        harness.append(log, b"gone", key=b"a", producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True)
        marker = build_end_txn_marker(EndTxnMarker(4, 0, 0, is_commit=False), timestamp_ms=1)
        log.append_as_leader(
            memoryview(bytearray(marker)),
            None,
            leader_epoch=0,
            origin=AppendOrigin.COORDINATOR,
            now_ms=harness.clock.time_ms(),
        )
        assert log.last_stable_offset == 0
        for number in range(20):
            harness.append(log, b"%d" % number + b"." * 100, key=b"k%d" % number)
            await log.flush()
        log.advance_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 22
        assert [(t.producer_id, t.first_offset) for t in log.aborted_transactions(0, 22)] == [(4, 0)]
        await manager.maintenance.wait_idle()
        await manager.clean()
        records = await harness.read_all(log)
        assert b"gone" not in [value for _, value in records]
        assert [offset for offset, _ in records if offset > 1] == list(range(2, 22))


# The cleaner, and the scrubber, never begin by themselves.
BY_HAND: dict[str, Any] = {"cleaner_backoff_ms": 1 << 40}
PRODUCER: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}


async def open_many(harness: Any, manager: Any, count: int, *, with_records: bool) -> list[PartitionLog]:
    logs = [await manager.open_log(UUID(int=number), f"t{number}", 0, LogConfig()) for number in range(count)]
    if with_records:
        for log in logs:
            harness.append(log, b"x", timestamp_ms=harness.clock.time_ms())
            await log.flush()
    return logs


@pytest.mark.parametrize("looks_at_all", [False, True])
@pytest.mark.parametrize("with_records", [False, True])
async def test_stores_without_work_share_turns_of_the_event_loop(
    harness: Any, with_records: bool, looks_at_all: bool, counted_looks: None
) -> None:
    """Others run between them, and a turn for each of many topics would take a second, again and again."""
    async with harness.manager(SimulatedDisk(1, clock=harness.clock), **BY_HAND) as manager:
        await open_many(harness, manager, 300, with_records=with_records)
        clean = partial(manager.cleaner.clean, with_retention=looks_at_all, with_producers=looks_at_all)
        assert 2 < await turns_during(clean) < 30


async def test_of_many_stores_those_with_something_old_are_found(harness: Any) -> None:
    """What was deleted, what has expired, and a producer that has been silent for long."""
    now_ms = harness.clock.time_ms()
    async with harness.manager(SimulatedDisk(1, clock=harness.clock), **BY_HAND) as manager:
        logs = await open_many(harness, manager, 20, with_records=False)
        for number, log in enumerate(logs):
            log.set_config(LogConfig(retention_ms=1000 if number == 7 else -1))
            harness.append(log, b"x", timestamp_ms=now_ms, **(PRODUCER if number == 11 else {}))
            await log.flush()
            log.set_high_watermark(1)
        harness.append(logs[3], b"y", timestamp_ms=now_ms)
        await logs[3].flush()
        logs[3].move_log_start(2)
        await logs[3].flush()
        files = {log: log.store.files.segments[-1].data_path for log in logs}
        harness.clock.advance(2 * manager.context.config.producer_id_expiration_ms)
        await manager.clean()
        await harness.settle()
        assert logs[7].log_start_offset == 1
        assert not logs[11].active_producers()
        rolled = [number for number, log in enumerate(logs) if log.store.files.segments[-1].data_path != files[log]]
        assert rolled == [3, 7]


async def test_stores_that_are_deleted_before_their_turn_are_passed_over(harness: Any, caplog: Any) -> None:
    async with harness.manager(SimulatedDisk(1, clock=harness.clock), **BY_HAND) as manager:
        logs = await open_many(harness, manager, 200, with_records=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.cleaner.clean)
            for log in logs[100:]:
                nursery.start_soon(manager.delete_logs, log.topic_id, [0])
        assert len(list(manager.stores())) == 100
        assert all(log.store.is_usable for log in logs[:100])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
