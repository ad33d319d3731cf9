"""The end of a node with many stores: several are brought to the disk at a time."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import Handle, RealDisk
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log_manager import LogManager
from tests.storage.conftest import counted_turns

TOPICS = 20


class Meeting(RealDisk):
    """The first two syncs of an end return when both have begun."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 0
        self._counting = threading.Lock()
        self._both = threading.Barrier(2)

    def begin(self) -> None:
        self._left = 2

    def fdatasync(self, handle: Handle) -> None:
        with self._counting:
            meets = self._left > 0
            self._left -= 1
        if meets:
            self._both.wait(timeout=60)
        super().fdatasync(handle)


async def test_stores_are_brought_to_the_disk_several_at_a_time(harness: Any) -> None:
    disk = Meeting()
    manager = LogManager(disk, harness.folder, StorageConfig(), harness.clock)
    async with manager.run():
        for number in range(TOPICS):
            log = await manager.open_log(UUID(int=number + 1), f"topic-{number}", 0, LogConfig())
            harness.append(log, b"%d" % number)
            await log.store.writer.flush(sync=False)
        disk.begin()
    manager = LogManager(RealDisk(), harness.folder, StorageConfig(), harness.clock)
    async with manager.run():
        assert manager.node_dir.was_clean
        for number in range(TOPICS):
            log = await manager.open_log(UUID(int=number + 1), f"topic-{number}", 0, LogConfig())
            assert await harness.read_all(log) == [(0, b"%d" % number)]
            assert not log.store.files.unsynced_bytes, "it was replayed, though the node has ended in order"


async def test_stores_at_rest_share_turns_of_the_event_loop_at_the_end(harness: Any) -> None:
    async with counted_turns() as turns:
        async with harness.manager(SimulatedDisk(1, clock=harness.clock)) as manager:
            for number in range(300):
                await manager.open_log(UUID(int=number), f"t{number}", 0, LogConfig())
            before = turns()
        assert 2 < turns() - before < 100
    assert not list(manager.stores())
