"""The life of a store: who is inside its gate when it is closed or deleted, and what is left of it afterwards."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.storage.config import LogConfig, StorageConfig, StoreLayout
from ottla.storage.disk import Disk
from ottla.storage.errors import LogClosedError
from ottla.storage.inspect.fsck import check_node
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.memory.iobuf import Fragment
from ottla.storage.node_dir import DELETED_SUFFIX
from ottla.storage.reading.plan import read
from ottla.storage.store.gate import Gate, Life
from ottla.storage.store.message_store import MessageStore
from tests.storage.held_disk import HeldDisk, exists, is_being_rewritten, until

LARGE = b"x" * 300_000
"""Too much to be written on the event loop."""


def topic_id(number: int) -> UUID:
    return UUID(int=number + 1)


@asynccontextmanager
async def running(harness: Any, disk: Disk, **settings: Any) -> AsyncIterator[LogManager]:
    manager = LogManager(disk, harness.folder, StorageConfig(**settings), harness.clock)
    async with manager.run():
        try:
            yield manager
        finally:
            if isinstance(disk, HeldDisk):
                disk.let_go()
    assert manager.context.pool.counters.in_use == 0, "a buffer was not given back"


async def open_topic(manager: LogManager, number: int, partition: int = 0, **settings: Any) -> PartitionLog:
    return await manager.open_log(topic_id(number), f"topic-{number}", partition, LogConfig(**settings))


def written_bytes(log: PartitionLog) -> list[tuple[int, int]]:
    """(what the store says, what the file system says) of each data file."""
    return [(segment.size_bytes, os.path.getsize(segment.data_path)) for segment in log.store.files.segments]


# Deletion.


async def test_a_deletion_waits_for_the_block_that_is_being_written(harness: Any) -> None:
    disk = HeldDisk()
    async with running(harness, disk, fd_cache_capacity=1) as manager, trio.open_nursery() as nursery:
        doomed = await open_topic(manager, 0)
        other = await open_topic(manager, 1)
        harness.append(other, b"before")
        await other.flush()
        disk.hold("pwritev")
        harness.append(doomed, LARGE)
        await disk.wait_until_held()
        nursery.start_soon(manager.delete_logs, topic_id(0), [0])
        await wait_all_tasks_blocked()
        assert exists(doomed.store.files.directory)
        # It takes the next free descriptor, which must not be the one that is being written by.
        third = await open_topic(manager, 2)
        disk.held.clear()
        harness.append(third, b"of another topic")
        await third.flush()
        disk.let_go()
        await until(lambda: not exists(doomed.store.files.directory))
        for log in (other, third):
            assert all(said == is_there for said, is_there in written_bytes(log))
            assert [value for _, value in await harness.read_all(log)] == [
                b"before" if log is other else b"of another topic"
            ]
        assert doomed.store.error is None
        path = manager.node_dir.path
    assert not [finding for finding in check_node(disk, path).findings if finding.severity == "error"]


async def test_partitions_are_deleted_under_the_block_that_is_being_written(harness: Any) -> None:
    disk = HeldDisk()
    async with running(harness, disk) as manager:
        doomed, kept = await open_topic(manager, 0, 0), await open_topic(manager, 0, 1)
        disk.hold("pwritev")
        harness.append(doomed, LARGE)
        harness.append(kept, LARGE)
        await disk.wait_until_held()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.delete_logs, topic_id(0), [0])
            await wait_all_tasks_blocked()
            disk.let_go()
        tables = doomed.store.files.segments[-1].tables
        assert tables is not None
        # Runs that were published after the deletion would be found by a partition of the same number.
        assert len(tables[doomed.key]) == 0
        assert len(tables[kept.key]) == 1
        again = await open_topic(manager, 0, 0)
        assert (again.log_start_offset, again.log_end_offset) == (0, 0)
        assert [value for _, value in await harness.read_all(kept)] == [LARGE]


async def test_who_waits_for_a_deleted_store_is_told(harness: Any) -> None:
    disk = HeldDisk()
    told: list[str] = []

    async def wait(name: str, log: PartitionLog) -> None:
        with pytest.raises(LogClosedError):
            await (log.flush() if name == "flush" else log.wait_for_room())
        told.append(name)

    async with running(harness, disk, memstore_bytes=400_000) as manager, trio.open_nursery() as nursery:
        log = await open_topic(manager, 0)
        disk.hold("pwritev")
        harness.append(log, LARGE)
        await disk.wait_until_held()
        harness.append(log, LARGE)
        harness.append(log, LARGE)
        assert not log.has_room
        nursery.start_soon(wait, "room", log)
        nursery.start_soon(wait, "flush", log)
        await wait_all_tasks_blocked()
        nursery.start_soon(manager.delete_logs, topic_id(0), [0])
        await wait_all_tasks_blocked()
        disk.let_go()
        await until(lambda: len(told) == 2)
        with pytest.raises(LogClosedError):
            harness.append(log, b"too late")


async def test_a_deletion_gives_back_the_memory_of_what_was_not_written_yet(harness: Any) -> None:
    disk = HeldDisk()
    given_back: list[int] = []
    async with running(harness, disk, inline_write_bytes=0) as manager, trio.open_nursery() as nursery:
        log = await open_topic(manager, 0)
        disk.hold("pwritev")
        for number in range(3):
            fragment = Fragment(harness.batch([b"x"]), lambda _, number=number: given_back.append(number))  # type: ignore[misc]
            log.append_as_leader(fragment.memory, fragment, leader_epoch=0, now_ms=harness.clock.time_ms())
            fragment.release()
            if number == 0:
                await disk.wait_until_held()
        assert not given_back
        nursery.start_soon(manager.delete_logs, topic_id(0), [0])
        await wait_all_tasks_blocked()
        disk.let_go()
        await until(lambda: log.store.gate.is_closed)
    assert sorted(given_back) == [0, 1, 2]


async def test_a_deletion_waits_for_a_read_of_its_files(harness: Any) -> None:
    disk = HeldDisk()
    # Too much to be read on the event loop, and nothing is kept in memory.
    async with running(harness, disk, tail_cache_bytes=0, inline_read_bytes=1000) as manager:
        log = await open_topic(manager, 0)
        harness.append(log, LARGE)
        await log.flush()
        plan = log.plan_read(0, max_bytes=1_000_000, end_offset=1, min_one_batch=True)
        disk.hold("preadv")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, [plan])
            await disk.wait_until_held()
            nursery.start_soon(manager.delete_logs, topic_id(0), [0])
            await wait_all_tasks_blocked()
            assert log.store.gate.life is Life.CLOSING
            assert exists(log.store.files.directory)
            disk.let_go()
        assert plan.records is not None
        assert plan.records.size_bytes > len(LARGE)
        plan.release()
        assert log.store.gate.is_closed
        assert len(manager.context.fd_cache) == 0


async def test_what_was_replaced_is_removed_before_the_store_is_gone(harness: Any) -> None:
    """Its successor has files of the same names."""
    disk = HeldDisk()
    async with running(harness, disk, segment_bytes=400_000) as manager, trio.open_nursery() as nursery:
        log = await open_topic(manager, 0, retention_ms=1000)
        store = log.store
        for _ in range(3):
            harness.append(log, LARGE)
            await log.flush()
        log.advance_high_watermark(3)
        await manager.maintenance.wait_idle()
        first = store.files.segments[0]
        disk.hold("unlink")
        harness.clock.advance(10_000)
        await manager.clean()
        assert first not in store.files.segments
        await disk.wait_until_held()
        nursery.start_soon(manager.delete_logs, topic_id(0), [0])
        await until(lambda: store.gate.life is Life.CLOSING)
        disk.let_go()
        again = await open_topic(manager, 0)
        harness.append(again, b"new")
        await again.flush()
        assert exists(again.store.files.segments[0].data_path)
    async with running(harness, HeldDisk()) as manager:
        assert await harness.read_all(await open_topic(manager, 0)) == [(0, b"new")]


async def test_stores_of_one_topic_are_deleted_at_once(harness: Any) -> None:
    disk = HeldDisk()
    async with running(harness, disk, partitions_per_store=1) as manager:
        logs = [await open_topic(manager, 0, partition) for partition in range(2)]
        for log in logs:
            harness.append(log, b"doomed")
            await log.flush()
        disk.hold("fsync_directory")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.delete_logs, topic_id(0), [0])
            await disk.wait_until_held()
            disk.held.clear()
            nursery.start_soon(manager.delete_logs, topic_id(0), [1])
            await trio.sleep(0.05)  # as long as a deletion takes that waits for nobody
            disk.let_go()
        assert not exists(os.path.dirname(logs[0].store.files.directory))


async def test_a_store_is_made_while_another_of_its_topic_is_deleted(harness: Any) -> None:
    disk = HeldDisk()
    async with running(harness, disk, partitions_per_store=1) as manager:
        doomed, other = [await open_topic(manager, 0, partition) for partition in range(2)]
        harness.append(doomed, b"doomed")
        await doomed.flush()
        disk.hold("listdir")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.delete_logs, topic_id(0), [0])
            await trio.sleep(0.05)  # it may look whether it is the last, or not
            harness.append(other, b"kept")
            await other.flush()
            disk.let_go()
        assert not exists(doomed.store.files.directory)
        again = await open_topic(manager, 0, 0)
        harness.append(again, b"new")
        await again.flush()
    async with running(harness, disk, partitions_per_store=1) as manager:
        assert await harness.read_all(await open_topic(manager, 0, 0)) == [(0, b"new")]
        assert await harness.read_all(await open_topic(manager, 0, 1)) == [(0, b"kept")]


async def test_what_is_planned_of_a_deleted_log_is_not_read(harness: Any) -> None:
    async with harness.manager(tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        harness.append(log, b"value")
        await log.flush()
        plan = log.plan_read(0, max_bytes=1000, end_offset=1, min_one_batch=True)
        await manager.delete_logs(log.topic_id, [0])
        await read([plan])
        assert isinstance(plan.error, LogClosedError)
        with pytest.raises(LogClosedError):
            log.plan_read(0, max_bytes=1000, end_offset=1, min_one_batch=True)
        with pytest.raises(LogClosedError):
            await log.offset_for_timestamp(0)


async def test_a_deletion_ends_the_cleaning_of_its_store(harness: Any) -> None:
    async with (
        harness.manager(segment_bytes=2000, tail_cache_bytes=0, cleaner_io_max_bytes_per_second=1) as manager,
        trio.open_nursery() as nursery,
    ):
        log = await harness.open(manager, compact=True, delete=False, min_cleanable_dirty_ratio=0.01)
        for number in range(30):
            harness.append(log, b"%d" % number * 100, key=b"key")
            await log.flush()
        log.advance_high_watermark(log.log_end_offset)
        await harness.settle()
        nursery.start_soon(manager.clean)
        # At one byte a second the rewrite pauses for an hour.
        await until(lambda: is_being_rewritten(log.store.files.directory))
        with trio.fail_after(5):
            await manager.delete_logs(log.topic_id, [0])
        assert not exists(log.store.files.directory)


class Listener:
    """Remembers which stores were said to be offline."""

    def __init__(self) -> None:
        self.offline: list[Exception] = []

    def on_flushed(self, logs: Any) -> None:
        pass

    def on_stalled(self, logs: Any) -> None:

        pass

    def on_offline(self, logs: Any, error: Exception) -> None:
        self.offline.append(error)

    def on_damaged(self, logs: Any) -> None:
        pass


async def test_nothing_touches_a_store_that_was_deleted(
    harness: Any, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    from ottla.storage.disk.simulated_disk import SimulatedDisk

    listener = Listener()
    disk = SimulatedDisk()
    async with harness.manager(disk, segment_bytes=1000, cleaner_backoff_ms=1000) as manager:
        manager.set_listener(listener)
        log = await harness.open(manager, flush_ms=5000, retention_bytes=100)
        for _ in range(10):
            harness.append(log, b"x" * 200)
            await log.store.writer.flush(sync=False)
        store = log.store
        manager.maintenance.request(store)
        await manager.delete_logs(log.topic_id, [0])
        # Past the flush timer, and many turns of the cleaner.
        await trio.sleep(60)
        await manager.clean()
        manager.maintenance.request(store)
        await manager.maintenance.wait_idle()
        assert (listener.offline, store.error, list(manager.stores())) == ([], None, [])
        assert not caplog.records
    assert disk.open_handles == 0


async def test_a_deleted_store_is_forgotten_by_everyone(harness: Any) -> None:
    def alive() -> int:
        gc.collect()
        return sum(isinstance(each, MessageStore | PartitionLog) for each in gc.get_objects())

    async with harness.manager(segment_bytes=1000, tail_cache_bytes=1 << 20) as manager:
        before = alive()
        for number in range(50):
            log = await open_topic(manager, number, compact=number % 2 == 0, flush_ms=3_600_000)
            for _ in range(4):
                harness.append(log, b"x" * 400, key=b"key")
                await log.flush()
            log.advance_high_watermark(log.log_end_offset)
            await harness.read_all(log)
            if number % 5 == 0:
                await manager.clean()
            await manager.delete_logs(topic_id(number), [0])
            del log
        await manager.maintenance.wait_idle()
        assert alive() == before
        assert (manager.context.tail.size_bytes, len(manager.context.tail), len(manager.context.fd_cache)) == (0, 0, 0)
        assert (len(manager.context.writers), len(manager.reader.read_ahead), len(manager.reader.prefetch)) == (0, 0, 0)


async def test_after_a_burst_no_more_descriptors_are_open_than_before(harness: Any) -> None:
    """While the write loops of many stores run, none can be closed."""
    async with harness.manager(fd_cache_capacity=4) as manager:
        logs = [await open_topic(manager, number) for number in range(20)]
        for log in logs:
            harness.append(log, b"x")
        async with trio.open_nursery() as nursery:
            for log in logs:
                nursery.start_soon(log.flush)
        await wait_all_tasks_blocked()
        assert len(manager.context.writers) == 4


async def test_a_store_whose_files_could_not_be_removed_can_be_deleted_again(harness: Any, monkeypatch: Any) -> None:
    """A partition that was moved away comes back, and is moved away again; what is left of it goes with the next."""
    refused = 0
    async with harness.manager() as manager:
        disk = manager.context.disk
        rmtree = disk.rmtree

        def rmtree_without_descriptors(path: str) -> None:
            nonlocal refused
            if exists(path) and not refused:
                refused += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            rmtree(path)

        monkeypatch.setattr(disk, "rmtree", rmtree_without_descriptors)
        for _ in range(2):
            log = await harness.open(manager)
            assert log.log_end_offset == 0
            harness.append(log, b"a")
            await log.flush()
            with suppress(OSError):
                await manager.delete_logs(harness.topic_id, [0])
        assert refused == 1
        assert not [name for name in os.listdir(manager.node_dir.path) if name.endswith(DELETED_SUFFIX)]
        assert (await harness.open(manager)).log_end_offset == 0


async def test_a_topic_that_is_made_again_while_it_is_deleted_is_a_new_one(harness: Any) -> None:
    disk = HeldDisk()
    async with running(harness, disk, store_layout=StoreLayout.PER_TOPIC) as manager:
        log = await open_topic(manager, 0)
        disk.hold("pwritev")
        harness.append(log, LARGE)
        await disk.wait_until_held()
        opened: list[PartitionLog] = []

        async def open_again() -> None:
            opened.append(await open_topic(manager, 0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.delete_logs, topic_id(0), [0])
            await wait_all_tasks_blocked()
            nursery.start_soon(open_again)
            await wait_all_tasks_blocked()
            assert not opened
            disk.let_go()
        assert opened[0].store.gate.is_open
        harness.append(opened[0], b"new")
        await opened[0].flush()
        assert await harness.read_all(opened[0]) == [(0, b"new")]


# The end of the log manager.


async def test_the_end_waits_for_the_block_that_is_being_written(harness: Any) -> None:
    disk = HeldDisk()
    async with trio.open_nursery() as nursery:
        async with running(harness, disk) as manager:
            log = await open_topic(manager, 0)
            disk.hold("pwritev")
            harness.append(log, LARGE)
            await disk.wait_until_held()

            async def let_go_later() -> None:
                await wait_all_tasks_blocked()
                disk.let_go()

            nursery.start_soon(let_go_later)
        assert log.flushed_end_offset == 1
        assert log.store.gate.is_closed
    async with running(harness, disk) as manager:
        log = await open_topic(manager, 0)
        assert [value for _, value in await harness.read_all(log)] == [LARGE]


# The gate.


async def test_the_gate_waits_for_all_who_are_inside() -> None:
    gate = Gate()
    with pytest.raises(LogClosedError):
        gate.enter()
    gate.open()
    gate.enter()
    gate.enter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.shut)
        await wait_all_tasks_blocked()
        with pytest.raises(LogClosedError):
            gate.enter()
        gate.leave()
        await wait_all_tasks_blocked()
        assert gate.life is Life.CLOSING
        assert len(nursery.child_tasks) == 1
        gate.leave()
    gate.closed()
    await gate.shut()
    assert gate.is_closed


async def test_what_takes_long_is_cancelled_when_the_gate_is_shut() -> None:
    gate = Gate()
    gate.open()
    ended: list[bool] = []

    async def clean() -> None:
        with gate.interruptible():
            await trio.sleep_forever()
        ended.append(gate.is_open)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(clean)
        await wait_all_tasks_blocked()
        await gate.shut()
    assert ended == [False]
