"""A stop brings many stores to the disk by syncs of the whole file system: nothing is lost, whenever the power goes."""

from __future__ import annotations

import errno
from typing import Any
from uuid import UUID

import pytest

from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import Handle, RealDisk
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.file_system_sync import sync_file_system
from ottla.storage.disk.simulated_disk import DiskCrashedError, SimulatedDisk
from ottla.storage.format.topic_file import TOPIC_FILE
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from tests.storage.conftest import in_place

TOPICS = 3
DESCRIPTION = b'{"name": "t"}'
CONFIG = StorageConfig(joint_checkpoint_stores=2)


class Operations(SimulatedDisk):
    """A simulated disk that cannot sync all, or counts how often that was asked of it, and of files."""

    syncs_all = True
    synced: list[str]

    def sync_all(self, handle: Handle) -> bool:
        self.synced.append("all")
        return super().sync_all(handle) if self.syncs_all else False

    def fdatasync(self, handle: Handle) -> None:
        self.synced.append(self._open_files[handle].path)
        super().fdatasync(handle)


def manager_on(disk: SimulatedDisk, harness: Any) -> LogManager:
    return LogManager(disk, "/data", CONFIG, harness.clock, run_blocking=in_place)


async def logs_of(manager: LogManager) -> list[PartitionLog]:
    return [await manager.open_log(UUID(int=number + 1), f"topic-{number}", 0, LogConfig()) for number in range(TOPICS)]


async def fill(manager: LogManager, harness: Any) -> None:
    """A record that is synced, and one that is written."""
    for log in await logs_of(manager):
        log.store.describe(lambda: DESCRIPTION)
        for value in (b"synced", b"written"):
            harness.append(log, value)
            await log.store.writer.flush(sync=value == b"synced")


@pytest.mark.parametrize(("memory_bytes", "syncs"), [(1 << 20, 3), (1, 1 + 2 * TOPICS)])
async def test_a_stop_syncs_no_file_by_itself_and_a_power_cut_takes_nothing(
    harness: Any, monkeypatch: pytest.MonkeyPatch, memory_bytes: int, syncs: int
) -> None:
    monkeypatch.setattr("ottla.storage.store.joint_checkpoint._MEMORY_BYTES", memory_bytes)
    disk = Operations(1)
    disk.synced = []
    manager = manager_on(disk, harness)
    async with manager.run():
        await fill(manager, harness)
        disk.synced.clear()
    assert [path for path in disk.synced if "topic" in path] == []
    assert disk.synced.count("all") == syncs
    manager = manager_on(disk.power_loss(), harness)
    async with manager.run():
        assert manager.node_dir.was_clean
        for log in await logs_of(manager):
            assert await harness.read_all(log) == [(0, b"synced"), (1, b"written")]
            assert log.store.snapshots
            assert not log.store.files.unsynced_bytes, "it was replayed, though the node has ended in order"
            assert not log.store.has_lost
            assert manager.context.disk.read_file(f"{log.store.files.directory}/{TOPIC_FILE}") == DESCRIPTION


async def test_whenever_the_power_goes_what_was_synced_is_there_and_nothing_seems_lost(harness: Any) -> None:
    after = -1
    while True:
        after += 1
        disk = SimulatedDisk(after)
        manager = manager_on(disk, harness)
        try:
            async with manager.run():
                await fill(manager, harness)
                fault = disk.faults.add(Fault(FaultKind.CRASH, after=after))
        except* DiskCrashedError:
            pass
        if not fault.struck:
            break
        manager = manager_on(disk.power_loss(), harness)
        async with manager.run():
            is_clean = manager.node_dir.was_clean
            for log in await logs_of(manager):
                records = await harness.read_all(log)
                assert records[0] == (0, b"synced")
                assert len(records) == 2 or not is_clean
                assert not log.store.has_lost
    assert after > 10 * TOPICS


async def test_after_a_sync_that_failed_the_folder_is_not_clean(harness: Any) -> None:
    disk = SimulatedDisk(1)
    manager = manager_on(disk, harness)
    async with manager.run():
        await fill(manager, harness)
        stores = list(manager.stores())
        # The first one is only an attempt.
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"sync_all"}), errno=errno.EIO, after=1))
    assert all(store.error is not None for store in stores)
    manager = manager_on(disk, harness)
    async with manager.run():
        assert not manager.node_dir.was_clean


@pytest.mark.parametrize("operation", ["create", "rename", "pwritev"])
async def test_one_store_that_cannot_be_written_stops_no_other(harness: Any, operation: str) -> None:
    disk = SimulatedDisk(1)
    manager = manager_on(disk, harness)
    async with manager.run():
        await fill(manager, harness)
        names = frozenset({operation})
        disk.faults.add(Fault(FaultKind.ERROR, names, path_contains="topic-1", errno=errno.ENOSPC))
    manager = manager_on(disk.power_loss(), harness)
    async with manager.run():
        assert manager.node_dir.was_clean
        for log in await logs_of(manager):
            assert len(await harness.read_all(log)) == 2
            assert not log.store.files.unsynced_bytes


async def test_a_disk_that_cannot_be_synced_as_a_whole(harness: Any) -> None:
    disk = Operations(1)
    disk.synced, disk.syncs_all = [], False
    manager = manager_on(disk, harness)
    async with manager.run():
        await fill(manager, harness)
        disk.synced.clear()
    assert disk.synced.count("all") == 1
    assert sum("topic" in path for path in disk.synced) >= TOPICS
    manager = manager_on(disk.power_loss(), harness)
    async with manager.run():
        assert manager.node_dir.was_clean
        for log in await logs_of(manager):
            assert len(await harness.read_all(log)) == 2


async def test_a_real_disk(harness: Any) -> None:
    manager = LogManager(RealDisk(), harness.folder, CONFIG, harness.clock)
    async with manager.run():
        await fill(manager, harness)
    manager = LogManager(RealDisk(), harness.folder, CONFIG, harness.clock)
    async with manager.run():
        assert manager.node_dir.was_clean
        for log in await logs_of(manager):
            assert len(await harness.read_all(log)) == 2
            assert not log.store.files.unsynced_bytes


def test_a_file_system_of_which_nothing_is_known() -> None:
    with open("/proc/self/stat", "rb") as file:
        assert not sync_file_system(file.fileno())
