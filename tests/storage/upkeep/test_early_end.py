"""Retention gives back the segment that is being written, when what it holds is dead; and what else happens then."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.storage.config import LogConfig, StorageConfig, StoreLayout
from ottla.storage.disk import RealDisk
from ottla.storage.disk.simulated_disk import DiskCrashedError, SimulatedDisk
from ottla.storage.errors import LogClosedError, OffsetOutOfRangeError
from ottla.storage.format.checkpoint import CHECKPOINT_NAME
from ottla.storage.inspect.fsck import check_node
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.reading.plan import read
from ottla.storage.upkeep.reclaim import keep_map, rewrite_segments
from tests.storage.held_disk import HeldDisk, exists, until

RETENTION_MS = 1000


def data_files(log: PartitionLog) -> dict[str, int]:
    folder = log.store.files.directory
    sizes = {}
    for name in os.listdir(folder):
        if name.endswith(".data"):
            with suppress(FileNotFoundError):  # a thread has removed it meanwhile
                sizes[name] = os.path.getsize(os.path.join(folder, name))
    return sizes


async def given_back(log: PartitionLog) -> None:
    """Wait until no more than what says where the logs begin is left."""
    await until(lambda: sum(data_files(log).values()) < 1000)


async def fill(harness: Any, log: PartitionLog, count: int, *, size: int = 200) -> None:
    for number in range(count):
        harness.append(log, b"%d:" % number + b"x" * size, timestamp_ms=harness.clock.time_ms())
    await log.store.writer.flush(sync=False)
    log.advance_high_watermark(log.log_end_offset)


async def expired(harness: Any, manager: LogManager, count: int = 20) -> PartitionLog:
    """A log whose records have all expired, in the segment that is written to."""
    log: PartitionLog = await harness.open(manager, retention_ms=RETENTION_MS)
    await fill(harness, log, count)
    harness.clock.advance(RETENTION_MS + 1)
    return log


async def test_an_idle_topic_gives_back_what_has_expired(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await expired(harness, manager)
        first = set(data_files(log))
        await manager.clean()
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (20, 20, 0)
        await given_back(log)
        files = data_files(log)
        assert not first & set(files)
        # Nothing has expired since: later passes leave it alone.
        await manager.clean()
        assert data_files(log) == files
        assert harness.append(log, b"next").base_offset == 20
        await log.flush()
        assert await harness.read_all(log) == [(20, b"next")]
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert await harness.read_all(log) == [(20, b"next")]


async def test_one_partition_that_lives_keeps_a_small_segment(harness: Any) -> None:
    """Else each pass would leave one more small segment of a topic with little traffic."""
    async with harness.manager() as manager:
        log = await expired(harness, manager)
        other = await harness.open(manager, 1, retention_ms=RETENTION_MS)
        await fill(harness, other, 1)
        await manager.clean()
        assert log.log_start_offset == 20
        assert len(other.store.files.segments) == 1
        assert len(await harness.read_all(other)) == 1


async def test_a_segment_of_which_much_is_dead_is_rewritten(harness: Any) -> None:
    async with harness.manager(checkpoint_bytes=3000) as manager:
        log = await expired(harness, manager)
        other = await harness.open(manager, 1, retention_ms=RETENTION_MS)
        await fill(harness, other, 3)
        before = sum(data_files(log).values())
        await manager.clean()
        assert (await harness.read_all(other))[0] == (0, b"0:" + b"x" * 200)
        await until(lambda: sum(data_files(log).values()) < before / 2)
        segments = len(log.store.files.segments)
        await manager.clean()
        assert len(log.store.files.segments) == segments


async def test_deleted_records_are_given_back_with_the_next_look(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        await fill(harness, log, 20)
        await log.advance_log_start_offset(20)
        await manager.cleaner.clean(with_retention=False)
        assert len(data_files(log)) == 1
        await manager.clean()
        await given_back(log)
        assert (log.log_start_offset, log.log_end_offset) == (20, 20)


@pytest.mark.parametrize("partitions", [1, 250])
async def test_where_a_log_goes_on_is_known_without_the_checkpoint(harness: Any, partitions: int) -> None:
    """Its records are gone, and so is the segment that said so."""
    async with harness.manager() as manager:
        logs = [await harness.open(manager, number, retention_ms=RETENTION_MS) for number in range(partitions)]
        for log in logs:
            harness.append(log, b"1", b"2", timestamp_ms=harness.clock.time_ms(), leader_epoch=5)
        await log.flush()
        for log in logs:
            log.advance_high_watermark(2)
        harness.clock.advance(RETENTION_MS + 1)
        await manager.clean()
        assert len(log.store.files.segments) == 1
    os.unlink(os.path.join(log.store.files.directory, CHECKPOINT_NAME))
    async with harness.manager() as manager:
        for number in range(partitions):
            log = await harness.open(manager, number)
            assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (2, 2, 2)
            assert (log.flushed_end_offset, log.latest_epoch, log.size_bytes) == (2, 5, 0)
        assert harness.append(log, b"3", leader_epoch=5).base_offset == 2
        await log.flush()
        assert await harness.read_all(log) == [(2, b"3")]


async def test_an_append_in_flight_is_kept(harness: Any) -> None:
    """Its block is on its way to the segment that is about to end, and more is appended meanwhile."""
    disk = HeldDisk()
    config = StorageConfig(inline_write_bytes=0, tail_cache_bytes=0)
    manager = LogManager(disk, harness.folder, config, harness.clock)
    harness.running = manager
    async with manager.run():
        log = await expired(harness, manager)
        async with trio.open_nursery() as nursery:
            disk.hold("pwritev")
            now_ms = harness.clock.time_ms()
            harness.append(log, b"in flight", timestamp_ms=now_ms)
            await disk.wait_until_held()
            nursery.start_soon(manager.clean)
            await wait_all_tasks_blocked()
            harness.append(log, b"meanwhile", timestamp_ms=now_ms)
            disk.let_go()
        await log.flush()
        assert log.log_start_offset == 20
        assert await harness.read_all(log) == [(20, b"in flight"), (21, b"meanwhile")]
        log.advance_high_watermark(22)
        harness.clock.advance(RETENTION_MS + 1)
        await manager.clean()
        await given_back(log)
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert (log.log_start_offset, log.log_end_offset) == (22, 22)


async def test_a_read_in_flight_ends_with_what_it_began_with(harness: Any) -> None:
    disk = HeldDisk()
    config = StorageConfig(tail_cache_bytes=0, inline_read_bytes=0)
    manager = LogManager(disk, harness.folder, config, harness.clock)
    harness.running = manager
    async with manager.run():
        log = await expired(harness, manager)
        plan = log.plan_read(0, max_bytes=1 << 20, end_offset=20, min_one_batch=True)
        async with trio.open_nursery() as nursery:
            disk.hold("preadv")
            nursery.start_soon(read, [plan])
            await disk.wait_until_held()
            disk.held.clear()
            await manager.clean()
            assert log.log_start_offset == 20
            disk.let_go()
        assert plan.error is None or isinstance(plan.error, OffsetOutOfRangeError)
        if plan.error is None:
            assert plan.records is not None
            assert plan.records.size_bytes > 20 * 200
        plan.release()
        # The files that it read from are gone now, too.
        await given_back(log)


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "unlink"])
@pytest.mark.parametrize("end", ["deletion", "stop"])
async def test_a_deletion_or_a_stop_meanwhile(harness: Any, call: str, end: str) -> None:
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(inline_write_bytes=0), harness.clock)
    harness.running = manager
    async with manager.run():
        log = await expired(harness, manager)
        directory = log.store.files.directory
        async with trio.open_nursery() as nursery:
            disk.hold(call)
            nursery.start_soon(manager.clean)
            await disk.wait_until_held()
            if end == "deletion":
                nursery.start_soon(manager.delete_logs, harness.topic_id, [0])
            else:
                nursery.start_soon(log.store.close)
            await wait_all_tasks_blocked()
            disk.let_go()
        with pytest.raises(LogClosedError):
            log.check_open()
        assert exists(directory) == (end == "stop")
    async with harness.manager() as manager:
        log = await harness.open(manager)
        found = (log.log_start_offset, log.log_end_offset)
        assert found == (0, 0) if end == "deletion" else found in ((0, 20), (20, 20))
    assert not check_node(RealDisk(), os.path.join(harness.folder, "node-0")).is_damaged


@pytest.mark.parametrize("steps", range(0, 30, 2))
@pytest.mark.parametrize("end", ["crash", "power loss"])
async def test_a_crash_at_any_step_leaves_the_log_as_it_was_or_empty(harness: Any, steps: int, end: str) -> None:
    disk = SimulatedDisk(steps)
    with suppress(DiskCrashedError):
        async with harness.manager(disk, tail_cache_bytes=0) as manager:
            log = await expired(harness, manager)
            await log.flush()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(manager.clean)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                disk = disk.crash() if end == "crash" else disk.power_loss()
                nursery.cancel_scope.cancel()
    async with harness.manager(disk) as manager:
        log = await harness.open(manager, retention_ms=RETENTION_MS)
        assert log.log_end_offset == 20
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(log.log_start_offset, 20))
        assert harness.append(log, b"next").base_offset == 20
        await log.flush()
    assert not check_node(disk, os.path.join(harness.folder, "node-0")).is_damaged


async def test_one_store_for_all_topics(harness: Any) -> None:
    """A topic that lives does not keep what has expired of the others for ever."""
    async with harness.manager(checkpoint_bytes=3000, store_layout=StoreLayout.SHARED) as manager:
        log = await expired(harness, manager)
        other = await manager.open_log(harness.other_topic_id, "other", 0, LogConfig())
        await fill(harness, other, 2)
        before = sum(data_files(log).values())
        await manager.clean()
        await until(lambda: sum(data_files(log).values()) < before / 2)
        assert len(await harness.read_all(other)) == 2


async def test_records_that_were_void_stay_so_where_a_retired_segment_comes_back(harness: Any) -> None:
    """Killed before the list without it is written. The one after it, then the oldest, has the truncation's mark."""
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log, other = [await harness.open(manager, partition, segment_ms=1000) for partition in range(2)]
        for _ in range(5):
            harness.append(log, b"void")
        await log.flush()
        harness.clock.advance(1000)
        harness.append(other, b"x")
        await other.flush()
        await log.truncate_to(0)
        for _ in range(7):
            harness.append(log, b"new")
        await log.flush()
        harness.clock.advance(1000)
        harness.append(other, b"x")
        await other.flush()
        await harness.settle()
        first, second = log.store.files.segments[:2]
        keep = await keep_map(log.store)
        assert await rewrite_segments(log.store, [first], keep)
        assert list(log.store.files.retired) == [first]
        assert await rewrite_segments(log.store, [second], keep)
        disk = disk.crash()
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        assert await rewrite_segments(log.store, log.store.files.segments[:2], await keep_map(log.store))
        assert await harness.read_all(log) == [(offset, b"new") for offset in range(7)]
