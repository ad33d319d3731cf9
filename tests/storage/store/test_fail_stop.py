"""A failed write or sync stops the store: nothing is acknowledged, what was acknowledged stays readable."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import DataDirLockedError, StoreOfflineError, UnsupportedFormatError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.memory.iobuf import Fragment


class Listener:
    def __init__(self) -> None:
        self.flushed: list[tuple[int, int]] = []
        self.offline: list[Exception] = []

    def on_flushed(self, logs: Sequence[PartitionLog]) -> None:
        self.flushed += [(log.partition, log.flushed_end_offset) for log in logs]

    def on_stalled(self, logs: Any) -> None:

        pass

    def on_offline(self, logs: Sequence[PartitionLog], error: Exception) -> None:
        self.offline.append(error)

    def on_damaged(self, logs: Sequence[PartitionLog]) -> None:
        pass


@pytest.mark.parametrize(
    ("operation", "code"), [("pwritev", errno.EIO), ("fdatasync", errno.EIO), ("fdatasync", errno.ENOSPC)]
)
async def test_a_failure_stops_the_store(harness: Any, operation: str, code: int) -> None:
    disk = SimulatedDisk(1)
    listener = Listener()
    async with harness.manager(disk) as manager:
        manager.set_listener(listener)
        log = await harness.open(manager, flush_messages=1)
        harness.append(log, b"a")
        await log.flush()
        assert listener.flushed == [(0, 1)]
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({operation}), errno=code))
        harness.append(log, b"b")
        with pytest.raises(StoreOfflineError):
            await log.flush()
        assert (log.log_end_offset, log.flushed_end_offset) == (2, 1)
        assert [error.errno for error in listener.offline] == [code]  # type: ignore[attr-defined]
        with pytest.raises(StoreOfflineError):
            harness.append(log, b"c")
        with pytest.raises(StoreOfflineError):
            await log.wait_for_room()
        assert await harness.read_all(log) == [(0, b"a")]
    async with harness.manager(disk.crash()) as manager:
        log = await harness.open(manager)
        assert (await harness.read_all(log))[:1] == [(0, b"a")]
        assert not manager.node_dir.was_clean


@pytest.mark.parametrize("inline_write_bytes", [0, 1 << 20])
async def test_the_memory_of_what_could_not_be_written_is_given_back(harness: Any, inline_write_bytes: int) -> None:
    disk = SimulatedDisk(1)
    given_back: list[int] = []
    async with harness.manager(disk, inline_write_bytes=inline_write_bytes) as manager:
        log = await harness.open(manager)
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO))
        for number in range(2):
            fragment = Fragment(harness.batch([b"x"]), lambda _, number=number: given_back.append(number))  # type: ignore[misc]
            log.append_as_leader(fragment.memory, fragment, leader_epoch=0, now_ms=harness.clock.time_ms())
            fragment.release()
        with pytest.raises(StoreOfflineError):
            await log.flush()
        assert given_back == [0, 1]


async def test_the_memory_of_an_append_that_failed_at_the_end_of_its_turn_is_given_back(harness: Any) -> None:
    disk = SimulatedDisk(1)
    given_back: list[int] = []
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        harness.append(log, b"before")
        await log.flush()
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO))
        fragment = Fragment(harness.batch([b"x"]), lambda _: given_back.append(1))
        log.append_as_leader(fragment.memory, fragment, leader_epoch=0, now_ms=harness.clock.time_ms())
        fragment.release()
        manager.context.turn.end()
        with pytest.raises(StoreOfflineError):
            await log.flush()
        assert given_back == [1]


async def test_flush_messages_one_syncs_before_it_counts(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager, flush_messages=1)
        harness.append(log, b"a")
        while log.flushed_end_offset == 0:
            await trio.lowlevel.checkpoint()
        assert not disk.has_unsynced_data(log.store.files.segments[0].data_path)


async def test_flush_ms_syncs_after_its_time(harness: Any, autojump_clock: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager, flush_ms=500)
        harness.append(log, b"a")
        await trio.sleep(0.4)
        path = log.store.files.segments[0].data_path
        assert log.flushed_end_offset == 1
        assert disk.has_unsynced_data(path)
        await trio.sleep(0.2)
        await trio.testing.wait_all_tasks_blocked()
        assert log.store.files.unsynced_bytes == 0


async def test_both_memstores_full_hold_appends_back(harness: Any) -> None:
    async with harness.manager(memstore_bytes=1000) as manager:
        log = await harness.open(manager)
        while log.has_room:
            harness.append(log, b"x" * 200)
        with trio.fail_after(5):
            await log.wait_for_room()
        assert log.has_room


async def test_a_second_process_is_refused(harness: Any) -> None:
    async with harness.manager() as manager:
        other = LogManager(manager.context.disk, harness.folder, manager.context.config, harness.clock)
        with pytest.raises(DataDirLockedError):
            async with other.run():
                pass


async def test_an_unknown_format_is_refused(harness: Any, tmp_path: Any) -> None:
    async with harness.manager():
        pass
    node = tmp_path / "node-0" / "node.json"
    node.write_text(node.read_text().replace('"format_version": 1', '"format_version": 99'))
    with pytest.raises(UnsupportedFormatError, match="99"):
        async with harness.manager():
            pass


async def test_a_damaged_identity_is_refused(harness: Any, tmp_path: Any) -> None:
    async with harness.manager():
        pass
    node = tmp_path / "node-0" / "node.json"
    whole = node.read_text()
    for damaged in (whole.replace("simulated", "Simulated"), whole.replace("true", "false")):
        if damaged == whole:
            continue
        node.write_text(damaged)
        with pytest.raises(UnsupportedFormatError, match="checksum"):
            async with harness.manager():
                pass
    # By hand it may be laid out otherwise, and an older one has no checksum.
    node.write_text(whole.replace("\n", " "))
    async with harness.manager():
        pass
    node.write_text(re.sub(r',\s*"crc32": "[0-9a-f]+"', "", whole))
    async with harness.manager():
        pass


async def test_no_sync_is_believed_after_one_has_failed(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        harness.append(log, b"a")
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"fdatasync"}), errno=errno.EIO))
        with pytest.raises(StoreOfflineError):
            await log.flush()
        with pytest.raises(OSError, match="earlier sync"):
            log.store.files.sync_segment(log.store.files.segments[0])


async def test_the_most_urgent_topic_of_a_shared_store_decides_when_to_sync(harness: Any, autojump_clock: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        patient = await harness.open(manager, 0, flush_ms=60_000)
        urgent = await harness.open(manager, 1, flush_ms=500)
        harness.append(patient, b"a")
        await trio.sleep(0.1)
        harness.append(urgent, b"b")
        await trio.sleep(0.6)
        await trio.testing.wait_all_tasks_blocked()
        assert patient.store.files.unsynced_bytes == 0
        harness.append(patient, b"c")
        await trio.sleep(61)
        await trio.testing.wait_all_tasks_blocked()
        assert patient.store.files.unsynced_bytes == 0
