"""Opening the stores of many topics by one call of a worker thread."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.store.message_store import MessageStore
from tests.storage.conftest import Harness, in_place
from tests.storage.held_disk import HeldDisk, exists, until

TOPICS = 40


def of_topic(number: int, partition: int = 0) -> tuple[UUID, str, int]:
    return UUID(int=number + 1), f"topic-{number}", partition


async def open_log(manager: LogManager, number: int, partition: int = 0) -> PartitionLog:
    return await manager.open_log(*of_topic(number, partition), LogConfig())


async def fill(harness: Harness, disk: SimulatedDisk) -> None:
    """One record for each topic."""
    async with harness.manager(disk) as manager:
        for number in range(TOPICS):
            log = await open_log(manager, number)
            harness.append(log, b"of topic %d" % number)
            await log.flush()


class Workers:
    """Counts the calls of worker threads."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        self.calls += 1
        return await in_place(function)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_many_stores_are_recovered_by_one_call(harness: Harness, is_killed: bool) -> None:
    disk = SimulatedDisk(1)
    await fill(harness, disk)
    if is_killed:
        async with harness.manager(disk) as manager:
            for number in range(TOPICS):
                log = await open_log(manager, number)
                harness.append(log, b"second")
                await log.store.writer.flush(sync=False)
            disk = disk.crash()
    workers = Workers()
    manager = LogManager(disk, harness.folder, StorageConfig(), harness.clock, run_blocking=workers.run)
    async with manager.run():
        before = workers.calls
        await manager.open_ahead(map(of_topic, range(TOPICS)))
        for number in range(TOPICS):
            log = await open_log(manager, number)
            expected = [(0, b"of topic %d" % number), (1, b"second")][: 1 + is_killed]
            assert await harness.read_all(log) == expected
            if not is_killed:
                assert workers.calls == before + 1


async def test_a_store_that_cannot_be_opened_stops_no_other(harness: Harness) -> None:
    disk = SimulatedDisk(1)
    await fill(harness, disk)
    async with harness.manager(disk) as manager:
        broken = Fault(FaultKind.ERROR, frozenset({"open_write"}), "topic-3.", errno=errno.EIO, count=2)
        disk.faults.add(broken)
        await manager.open_ahead(map(of_topic, range(TOPICS)))
        assert len(list(manager.stores())) == TOPICS - 1
        assert await harness.read_all(await open_log(manager, 4)) == [(0, b"of topic 4")]
        with pytest.raises(OSError, match="topic-3"):
            await open_log(manager, 3)
        assert await harness.read_all(await open_log(manager, 3)) == [(0, b"of topic 3")]


@pytest.mark.parametrize("count", [1, 5])
async def test_stores_wait_for_descriptors(harness: Harness, autojump_clock: Any, count: int) -> None:
    disk = SimulatedDisk(1)
    await fill(harness, disk)
    async with harness.manager(disk) as manager:
        lacking = Fault(FaultKind.ERROR, frozenset({"open_write"}), "topic-", errno=errno.EMFILE, after=7, count=count)
        disk.faults.add(lacking)
        await manager.open_ahead(map(of_topic, range(TOPICS)))
        assert lacking.struck == count
        assert len(list(manager.stores())) == TOPICS
        assert [(await open_log(manager, number)).log_end_offset for number in range(TOPICS)] == [1] * TOPICS


async def test_a_store_that_could_not_be_opened_is_forgotten(harness: Harness) -> None:
    """A node tries again every second, as long as the disk fails."""

    def alive() -> int:
        gc.collect()
        return sum(isinstance(each, MessageStore | PartitionLog) for each in gc.get_objects())

    disk = SimulatedDisk(1)
    await fill(harness, disk)
    async with harness.manager(disk) as manager:
        before = alive()
        fault = disk.faults.add(Fault(FaultKind.ERROR, frozenset({"open_write"}), errno=errno.EIO, count=None))
        for _ in range(5):
            with pytest.raises(OSError, match="topic-3"):
                await open_log(manager, 3)
        assert fault.struck == 5
        assert alive() == before
        disk.faults.clear()


async def test_the_folder_of_a_store_that_is_being_opened_stays(harness: Harness) -> None:
    """The last store of the topic that is there is deleted meanwhile, and takes no empty folder with it."""
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(partitions_per_store=1), harness.clock)
    async with manager.run():
        for partition in range(2):
            log = await open_log(manager, 0, partition)
            harness.append(log, b"kept" if partition else b"deleted")
            await log.flush()
    manager = LogManager(disk, harness.folder, StorageConfig(partitions_per_store=1), harness.clock)
    async with manager.run(), trio.open_nursery() as nursery:
        deleted = await open_log(manager, 0, 0)
        disk.hold("listdir")
        nursery.start_soon(manager.open_ahead, [of_topic(0, 1), of_topic(1)])
        await disk.wait_until_held()
        disk.held.clear()
        nursery.start_soon(manager.delete_logs, UUID(int=1), [0])
        await until(lambda: not exists(deleted.store.files.directory))
        disk.let_go()
        kept = await open_log(manager, 0, 1)
        assert await harness.read_all(kept) == [(0, b"kept")]
        harness.append(kept, b"more")
        await kept.flush()
    assert sorted(os.listdir(Path(kept.store.files.directory).parent)) == ["1"]


async def test_a_store_in_a_folder_that_is_being_deleted_is_opened_after_that(harness: Harness) -> None:
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(), harness.clock)
    async with manager.run(), trio.open_nursery() as nursery:
        log = await open_log(manager, 0)
        harness.append(log, b"x" * 300_000)
        await log.flush()
        disk.hold("fsync_directory")
        nursery.start_soon(manager.delete_logs, UUID(int=1), [0])
        await disk.wait_until_held()
        disk.held.clear()
        await manager.open_ahead([of_topic(0), of_topic(1)])
        (opened,) = manager.stores()
        assert "topic-1." in opened.files.directory
        disk.let_go()
        log = await open_log(manager, 0)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        harness.append(log, b"new")
        await log.flush()
        assert await harness.read_all(log) == [(0, b"new")]
