"""Two things at once, or one that is given up in the middle: found by the simulation, each told here by itself."""

from __future__ import annotations

import errno
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import Handle, RealDisk
from ottla.storage.errors import StoreOfflineError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.reading.plan import read
from ottla.storage.store.maintenance import maintain
from tests.storage.held_disk import HeldDisk


async def appended(harness: Any, log: PartitionLog, count: int, *, size: int = 20, **options: Any) -> None:
    """Append so many batches, each in a block of its own."""
    for number in range(count):
        harness.append(log, b"%d:" % number + b"." * size, key=b"%d" % (number % 3), **options)
        await log.store.writer.flush(sync=False)
    log.advance_high_watermark(log.log_end_offset)


async def test_a_read_over_very_many_runs_of_several_segments_skips_none(harness: Any) -> None:
    """The bound on the runs of one read was one for each segment: what lay beyond it in the first was skipped."""
    async with harness.manager(tail_cache_bytes=0, run_bytes=50) as manager:
        log = await harness.open(manager)
        await appended(harness, log, 1100)
        # A new segment while the one before is not sealed yet.
        async with log.store.lock:
            harness.clock.advance(log.config.segment_ms + 1)
            await appended(harness, log, 10)
            assert len(log.store.files.unsealed) == 2
            assert [offset for offset, _ in await harness.read_all(log)] == list(range(1110))


@pytest.mark.parametrize("steps", range(8))
async def test_a_checkpoint_that_is_given_up_forgets_no_state(harness: Any, steps: int) -> None:
    async with harness.manager() as manager:
        logs = [await harness.open(manager, number) for number in range(2)]
        for log in logs:
            await appended(harness, log, 5)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(maintain, logs[0].store)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        # The next one, which moves the recovery point, must speak of both again.
        await appended(harness, logs[0], 1)
    async with harness.manager() as manager:
        for number, count in ((0, 6), (1, 5)):
            log = await harness.open(manager, number)
            assert len(await harness.read_all(log)) == count


async def test_a_truncation_is_carried_out_though_who_asked_is_gone(harness: Any) -> None:
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(inline_write_bytes=0), harness.clock)
    async with manager.run():
        log = await manager.open_log(UUID(int=9), "topic", 0, LogConfig())
        for number in range(10):
            harness.append(log, b"v", producer_id=3, producer_epoch=0, base_sequence=number)
        await log.flush()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                disk.hold("pwritev")
                nursery.start_soon(log.truncate_to, 4)
                await disk.wait_until_held()
                scope.cancel()
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                disk.let_go()
        state = log.producers.get(3) if log.producers is not None else None
        assert state is not None
        assert (log.log_end_offset, log.log_start_offset, state.last_sequence) == (4, 0, 3)
        assert len(await harness.read_all(log)) == 4


class FailingReads(RealDisk):
    """A disk from which nothing can be read any more, from some moment on."""

    fails = False

    def preadv(self, handle: Handle, buffers: Any, position: int, *, nowait: bool = False) -> int:
        if self.fails:
            raise OSError(errno.EIO, "the device is gone")
        return super().preadv(handle, buffers, position, nowait=nowait)


async def test_a_truncation_whose_producers_cannot_be_read_stops_the_store(harness: Any) -> None:
    disk = FailingReads()
    manager = LogManager(disk, harness.folder, StorageConfig(tail_cache_bytes=0), harness.clock)
    async with manager.run():
        log = await manager.open_log(UUID(int=9), "topic", 0, LogConfig())
        for number in range(10):
            harness.append(log, b"v", producer_id=3, producer_epoch=0, base_sequence=number)
        await log.flush()
        disk.fails = True
        with pytest.raises(StoreOfflineError):
            await log.truncate_to(4)
        # Nobody may take what is known of the producers for true, a checkpoint least of all.
        assert log.store.error is not None
        disk.fails = False


async def test_a_truncation_below_a_start_that_has_moved_goes_to_the_start(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        await appended(harness, log, 10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.truncate_to, 3)
            nursery.start_soon(log.advance_log_start_offset, 5)
        assert log.log_start_offset <= log.log_end_offset
        assert log.log_start_offset in (0, 3, 5)


@pytest.mark.parametrize("steps", range(0, 10, 2))
@pytest.mark.parametrize("meanwhile", ["the other log is deleted", "the checkpoint is given up"])
async def test_many_producers_go_on_while_their_state_is_packed(harness: Any, steps: int, meanwhile: str) -> None:
    def send(log: PartitionLog, sequence: int, producers: range) -> None:
        for producer_id in producers:
            harness.append(log, b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    async with harness.manager() as manager:
        logs = [await harness.open(manager, number) for number in range(2)]
        for log in logs:
            send(log, 0, range(150))
        await logs[0].store.writer.flush(sync=False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(maintain, logs[0].store)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            send(logs[0], 1, range(100))
            if meanwhile == "the checkpoint is given up":
                nursery.cancel_scope.cancel()
            else:
                await manager.delete_logs(harness.topic_id, [1])
        send(logs[0], 2, range(50))
    async with harness.manager() as manager:
        log = await harness.open(manager, 0)
        last = {entry.producer_id: entry.last_sequence for entry in log.active_producers()}
        assert last == {number: (number < 100) + (number < 50) for number in range(150)}
        left = (await harness.open(manager, 1)).active_producers()
        assert len(left) == (150 if meanwhile == "the checkpoint is given up" else 0)


async def test_a_large_block_in_memory_is_walked_through(harness: Any) -> None:
    async with harness.manager(memstore_bytes=8 << 20) as manager:
        log = await harness.open(manager)
        for number in range(5):
            harness.append(log, b"%d" % number * 400_000)
        await log.flush()
        offset = 0
        while offset < 5:
            records, following = await log.read_batches(offset, 5)
            with records:
                assert records.size_bytes > 0
            assert following > offset
            offset = following


async def test_one_log_that_cannot_be_read_fails_no_other(harness: Any) -> None:
    class Disk(RealDisk):
        broken = ""

        def open_read(self, path: str) -> Handle:
            if self.broken and self.broken in path:
                raise OSError(errno.EIO, "the device is gone")
            return super().open_read(path)

    disk = Disk()
    manager = LogManager(disk, harness.folder, StorageConfig(tail_cache_bytes=0), harness.clock)
    async with manager.run():
        logs = [await manager.open_log(UUID(int=number + 1), f"t{number}", 0, LogConfig()) for number in range(2)]
        for log in logs:
            await appended(harness, log, 3)
        disk.broken = logs[0].store.files.directory
        plans = [log.plan_read(0, max_bytes=1000, end_offset=3, min_one_batch=True) for log in logs]
        await read(plans)
        assert isinstance(plans[0].error, OSError)
        assert plans[1].error is None
        assert plans[1].records is not None
        plans[1].release()
        disk.broken = ""


async def test_a_deletion_is_finished_though_who_asked_is_gone(harness: Any) -> None:
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(inline_write_bytes=0), harness.clock)
    async with manager.run():
        logs = [await manager.open_log(UUID(int=9), "topic", number, LogConfig()) for number in range(2)]
        for log in logs:
            await appended(harness, log, 3)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                disk.hold("pwritev")
                nursery.start_soon(manager.delete_logs, UUID(int=9), [0])
                await disk.wait_until_held()
                scope.cancel()
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                disk.let_go()
        again = await manager.open_log(UUID(int=9), "topic", 0, LogConfig())
        assert again is not logs[0]
        assert (again.is_closed, again.log_end_offset) == (False, 0)


async def test_compaction_that_meets_a_moved_log_start_is_tried_again(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness.manager(segment_bytes=1500, tail_cache_bytes=0) as manager:
        log = await harness.open(manager, compact=True, delete=False, min_cleanable_dirty_ratio=0.01)
        await appended(harness, log, 40, size=100)
        await harness.settle()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.clean)
            await trio.lowlevel.checkpoint()
            await log.advance_log_start_offset(30)
        await manager.clean()
        assert log not in log.store.uncleanable
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_log_deleted_under_a_cleaning_ends_nothing(harness: Any) -> None:
    async with harness.manager(segment_bytes=1500, tail_cache_bytes=0) as manager:
        logs = [await harness.open(manager, number, compact=True, min_cleanable_dirty_ratio=0.01) for number in (0, 1)]
        for log in logs:
            await appended(harness, log, 40, size=100)
        await harness.settle()
        for turns in range(12):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(manager.clean)
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                await manager.delete_logs(harness.topic_id, [0])
            logs[0] = await harness.open(manager, 0, compact=True, min_cleanable_dirty_ratio=0.01)
            await appended(harness, logs[0], 20, size=100)
            await harness.settle()
        assert len(await harness.read_all(logs[0])) == 20
