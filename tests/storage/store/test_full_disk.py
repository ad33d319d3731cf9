"""A full disk: what was acknowledged is served, room can be made, and writes come back by themselves."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.storage.clock import ManualClock
from ottla.storage.disk import RealDisk
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import DiskFullError, StoreOfflineError
from ottla.storage.inspect.fsck import check_node
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.node_dir import NODE_FILE, SPARE_FILE, NodeDir
from tests.storage.held_disk import exists, until

VALUE = b"x" * 300


class Listener:
    def __init__(self) -> None:
        self.stalled = 0
        self.offline = 0

    def on_flushed(self, logs: Sequence[PartitionLog]) -> None:
        pass

    def on_stalled(self, logs: Sequence[PartitionLog]) -> None:
        self.stalled += 1

    def on_offline(self, logs: Sequence[PartitionLog], error: Exception) -> None:
        self.offline += 1

    def on_damaged(self, logs: Sequence[PartitionLog]) -> None:
        pass


async def fill_up(harness: Any, log: PartitionLog, value: bytes = VALUE) -> int:
    """Append until there is no room; returns how many were acknowledged."""
    for number in range(100_000):
        try:
            harness.append(log, value)
            await log.flush()
        except DiskFullError:
            return number
    raise AssertionError("the disk does not fill up")


@pytest.mark.parametrize("end", ["room", "crash", "power loss", "stop"])
@pytest.mark.parametrize("flush_messages", [1, 1 << 60])
async def test_nothing_that_was_acknowledged_is_lost(
    harness: Any, end: str, flush_messages: int, autojump_clock: Any
) -> None:
    disk = SimulatedDisk(1, capacity_bytes=9000)
    async with harness.manager(disk, tail_cache_bytes=0) as manager:
        listener = Listener()
        manager.set_listener(listener)
        log = await harness.open(manager, flush_messages=flush_messages)
        count = await fill_up(harness, log)
        assert 5 < count < 30
        assert log.flushed_end_offset == count
        assert (listener.offline, manager.context.space.is_full) == (0, True)
        assert listener.stalled
        # Reads go on, appends are refused at once and change nothing.
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(count))
        with pytest.raises(DiskFullError):
            harness.append(log, VALUE)
        assert log.log_end_offset == count + 1
        # What the write has left does not take the room that is left.
        segment = log.store.files.segments[-1]
        assert disk.size_of(segment.data_path) == segment.size_bytes
        if end == "room":
            disk.capacity_bytes = 3_000_000
            await trio.sleep(2)
            await wait_all_tasks_blocked()
            assert not manager.context.space.is_full
            # The block that waited is written, to the same place.
            assert log.flushed_end_offset == count + 1
            harness.append(log, b"again")
            await log.flush()
            assert [offset for offset, _ in await harness.read_all(log)] == list(range(count + 2))
        crashed = disk.crash() if end == "crash" else disk.power_loss() if end == "power loss" else None
    disk = crashed or disk
    disk.capacity_bytes = None
    assert not check_node(disk, os.path.join(harness.folder, "node-0")).is_damaged
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        if end != "power loss" or flush_messages == 1:
            assert [offset for offset, _ in await harness.read_all(log)][:count] == list(range(count))
        harness.append(log, b"after")
        await log.flush()


async def test_deletion_makes_room(harness: Any, autojump_clock: Any) -> None:
    disk = SimulatedDisk(1, capacity_bytes=4_000_000)
    async with harness.manager(disk, disk_reserve_bytes=20_000) as manager:
        await trio.sleep(2)
        log = await harness.open(manager)
        other = await manager.open_log(harness.other_topic_id, "other", 0, log.config)
        harness.append(other, VALUE)
        await other.flush()
        count = await fill_up(harness, log, VALUE * 100)
        with pytest.raises(DiskFullError):
            harness.append(other, VALUE)
        await manager.delete_logs(harness.topic_id, [0])
        assert count > 100
        await trio.sleep(3)
        await wait_all_tasks_blocked()
        harness.append(other, VALUE)
        await other.flush()
        assert disk.exists(manager.node_dir.reserve_path)


async def test_a_log_that_could_not_be_deleted_serves_when_it_is_opened_again(
    harness: Any, autojump_clock: Any
) -> None:
    """A replica is moved away from a full disk, which refuses that, and is moved back."""
    disk = SimulatedDisk(1, capacity_bytes=9000)
    async with harness.manager(disk, tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        other = await manager.open_log(harness.topic_id, "topic", 1, log.config)
        assert other.store is log.store
        harness.append(other, VALUE)
        count = await fill_up(harness, log)
        with pytest.raises(DiskFullError):
            await manager.delete_logs(harness.topic_id, [0])
        disk.capacity_bytes = None
        await trio.sleep(2)
        log = await harness.open(manager)
        harness.append(log, b"again")
        await log.flush()
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(count + 2))
        await manager.delete_logs(harness.topic_id, [0])
        log = await harness.open(manager)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)


@pytest.mark.parametrize("reserve_bytes", [0, 30_000])
async def test_retention_makes_room_with_the_reserve(harness: Any, reserve_bytes: int, autojump_clock: Any) -> None:
    disk = SimulatedDisk(1, capacity_bytes=4_000_000)
    async with harness.manager(disk, disk_reserve_bytes=reserve_bytes, segment_bytes=300_000) as manager:
        await trio.sleep(2)
        log = await harness.open(manager, retention_bytes=600_000, segment_bytes=300_000)
        count = await fill_up(harness, log, VALUE * 30)
        log.advance_high_watermark(count)
        await manager.maintenance.wait_idle()
        if reserve_bytes:
            await manager.clean()
            await trio.sleep(20)
            await manager.clean()
            await trio.sleep(5)
            await wait_all_tasks_blocked()
            assert log.log_start_offset > 0
            assert not manager.context.space.is_full
            harness.append(log, VALUE)
            await log.flush()
            assert log.flushed_end_offset > count
        else:
            # Nothing was kept back for what says that records may go: it may fail, but nothing is lost by it.
            await manager.clean()
            start = log.log_start_offset
            assert [each for each, _ in await harness.read_all(log)] == list(range(start, count))


@pytest.mark.parametrize("reserve_bytes", [0, 30_000])
async def test_what_has_expired_of_a_topic_that_filled_the_disk_makes_room(
    harness: Any, reserve_bytes: int, autojump_clock: Any
) -> None:
    """All of it is in the segment that is being written, which must end for that."""
    disk = SimulatedDisk(1, capacity_bytes=4_000_000)
    async with harness.manager(disk, disk_reserve_bytes=reserve_bytes) as manager:
        await trio.sleep(2)
        log = await harness.open(manager)
        count = await fill_up(harness, log, VALUE * 30)
        log.advance_high_watermark(count)
        assert len(log.store.files.segments) == 1
        log = await harness.open(manager, retention_ms=1000)
        harness.clock.advance(1001)
        await manager.clean()
        await trio.sleep(5)
        await wait_all_tasks_blocked()
        if reserve_bytes:
            assert log.log_start_offset == count
            assert not manager.context.space.is_full
            assert disk.exists(manager.node_dir.reserve_path)
            harness.append(log, b"again")
            await log.flush()
            # The first is the block that found no room.
            assert [each for each, _ in await harness.read_all(log)] == [count, count + 1]
        else:
            # Nothing was kept back for what says that records may go: it may fail, but nothing is lost by it.
            start = log.log_start_offset
            assert [each for each, _ in await harness.read_all(log)] == list(range(start, count))
        disk = disk.crash()
    disk.capacity_bytes = None
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        found = [each for each, _ in await harness.read_all(log)]
        assert found[-1] >= count - 1
        assert found == list(range(found[0], log.log_end_offset))


async def test_what_waited_for_room_keeps_no_segment_alive(harness: Any, autojump_clock: Any) -> None:
    """All that readers see is deleted; the block that found no room is written to the same segment afterwards, and what
    is left of it fits into the reserve. Five times in a row.
    """
    disk = SimulatedDisk(1, capacity_bytes=20_000_000)
    async with harness.manager(disk, disk_reserve_bytes=4_000_000, retention_check_interval_ms=300_000) as manager:
        await trio.sleep(2)
        log = await harness.open(manager)
        for _ in range(5):
            visible = log.log_end_offset + await fill_up(harness, log, VALUE * 300)
            assert log.log_end_offset > visible - 1
            visible = log.flushed_end_offset
            log.advance_high_watermark(visible)
            assert manager.context.space.is_full
            with trio.fail_after(20):  # of the event loop's clock
                await log.advance_log_start_offset(visible)
                while manager.context.space.is_full:  # noqa: ASYNC110 (nobody could set an event)
                    await trio.sleep(0.1)
            assert disk.exists(manager.node_dir.reserve_path)
            waited = [each for each, _ in await harness.read_all(log)]
            assert waited == list(range(visible, log.log_end_offset)) != []
        assert disk.free_bytes(harness.folder) > 10_000_000
        disk = disk.crash()
    disk.capacity_bytes = None
    assert not check_node(disk, os.path.join(harness.folder, "node-0")).is_damaged


async def test_a_log_start_that_finds_the_disk_full_has_the_reserve(harness: Any, autojump_clock: Any) -> None:
    """Nobody has noticed before that the disk is full: its own block is the first that finds no room."""
    capacity_bytes = 20_000_000
    disk = SimulatedDisk(1, capacity_bytes=capacity_bytes)
    async with harness.manager(disk, disk_reserve_bytes=4_000_000) as manager:
        await trio.sleep(2)
        log = await harness.open(manager)
        for _ in range(3):
            harness.append(log, VALUE)
            await log.flush()
        log.advance_high_watermark(3)
        disk.capacity_bytes = capacity_bytes - disk.free_bytes(harness.folder)
        assert not manager.context.space.is_full
        await log.advance_log_start_offset(2)
        assert log.log_start_offset == 2
        assert manager.context.space.is_full


async def test_a_disk_that_fills_up_soon_after_a_start_has_room_soon(harness: Any, autojump_clock: Any) -> None:
    """The cleaner does not wait out its first pause, as long as it takes for an idle node."""
    disk = SimulatedDisk()
    settings = {"disk_reserve_bytes": 1 << 20, "cleaner_backoff_ms": 600_000}
    async with harness.manager(disk, **settings) as manager:
        log = await harness.open(manager)
        await trio.sleep(2)  # there is a reserve
        disk.capacity_bytes = disk._media.used_bytes + 2_000_000
        await fill_up(harness, log, VALUE * 100)
        log.set_high_watermark(log.log_end_offset)
        await log.advance_log_start_offset(log.log_end_offset)
        with trio.fail_after(10):
            await manager.context.space.until_room()
        harness.append(log, b"there is room")
        await log.flush()


async def test_a_start_on_a_full_disk_serves(harness: Any, autojump_clock: Any) -> None:
    disk = SimulatedDisk(1, capacity_bytes=40_000)
    async with harness.manager(disk, disk_reserve_bytes=2000, segment_bytes=5000) as manager:
        log = await harness.open(manager)
        count = await fill_up(harness, log)
        disk = disk.crash()
    disk.capacity_bytes = 1
    async with harness.manager(disk, disk_reserve_bytes=2000, segment_bytes=5000) as manager:
        await wait_all_tasks_blocked()
        log = await harness.open(manager)
        assert [offset for offset, _ in await harness.read_all(log)][:count] == list(range(count))
        assert manager.context.space.is_full
        with pytest.raises(DiskFullError):
            harness.append(log, VALUE)
        disk.capacity_bytes = None
        await trio.sleep(2)
        harness.append(log, VALUE)
        await log.flush()


@pytest.mark.parametrize("operation", ["open_write", "create", "open_read", "fsync_directory"])
async def test_no_descriptors_are_waited_out(harness: Any, operation: str, autojump_clock: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk, tail_cache_bytes=0, segment_bytes=2000, fd_cache_capacity=1) as manager:
        listener = Listener()
        manager.set_listener(listener)
        log = await harness.open(manager)
        for number in range(30):
            disk.faults.add(Fault(FaultKind.ERROR, frozenset({operation}), errno=errno.EMFILE, count=3))
            harness.append(log, VALUE)
            await log.flush()
            if number % 7 == 0:
                assert [offset for offset, _ in await harness.read_all(log)] == list(range(number + 1))
        await manager.maintenance.wait_idle()
        assert listener.offline == 0
        await manager.clean()
        assert log.store.is_usable
    disk.faults.clear()
    disk.faults.add(Fault(FaultKind.ERROR, frozenset({operation}), "topic", errno=errno.ENFILE, count=5))
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(30))


@pytest.mark.parametrize("change", ["truncation", "log start"])
async def test_a_log_that_is_cut_waits_for_descriptors(harness: Any, change: str, autojump_clock: Any) -> None:
    """Also where the index of a segment that was just sealed has to be opened for it."""
    disk = SimulatedDisk(1)
    async with harness.manager(disk, segment_bytes=1000) as manager:
        log = await harness.open(manager)
        for _ in range(20):
            harness.append(log, VALUE)
            await log.flush()
            await harness.settle()
        log.set_high_watermark(20)
        lacking = Fault(FaultKind.ERROR, frozenset({"open_read"}), ".index", errno=errno.EMFILE, count=3)
        fault = disk.faults.add(lacking)
        if change == "truncation":
            await log.truncate_to(15)
            expected = range(15)
        else:
            await log.advance_log_start_offset(7)
            expected = range(7, 20)
        assert fault.struck == 3
        assert log.store.is_usable
        assert [offset for offset, _ in await harness.read_all(log)] == list(expected)


async def test_the_log_start_stays_where_an_index_cannot_be_read(harness: Any) -> None:
    """A follower and a mirror let the partition rest then."""
    disk = SimulatedDisk(1)
    async with harness.manager(disk, segment_bytes=1000) as manager:
        log = await harness.open(manager)
        for _ in range(20):
            harness.append(log, VALUE)
            await log.flush()
            await harness.settle()
        log.set_high_watermark(20)
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"open_read"}), ".index", errno=errno.EIO))
        with pytest.raises(StoreOfflineError):
            await log.advance_log_start_offset(7)
        await log.advance_log_start_offset(7)
        assert log.log_start_offset == 7


async def test_nothing_is_acknowledged_without_a_descriptor(harness: Any, autojump_clock: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        fault = disk.faults.add(Fault(FaultKind.ERROR, frozenset({"create"}), errno=errno.EMFILE, count=None))
        harness.append(log, VALUE)
        await trio.sleep(1)
        assert fault.struck > 5
        assert (log.flushed_end_offset, log.store.error) == (0, None)
        disk.faults.clear()
        await log.flush()
        assert log.flushed_end_offset == 1


async def test_a_store_is_closed_while_it_waits(harness: Any, autojump_clock: Any) -> None:
    disk = SimulatedDisk(1, capacity_bytes=4000)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        await fill_up(harness, log)
        with trio.fail_after(5):
            await manager.delete_logs(harness.topic_id, [0])
        assert not disk.exists(log.store.files.directory)


def as_an_earlier_release_left_it(disk: SimulatedDisk, harness: Any) -> None:
    """There is no file that a note could be written over."""
    disk.unlink(f"{harness.folder}/node-0/{SPARE_FILE}")


async def test_a_start_on_a_full_disk_is_noted_where_it_takes_no_room(harness: Any) -> None:
    """Else the next start would take the folder for an older copy of itself."""
    disk = SimulatedDisk(1)
    for count in range(1, 4):
        async with harness.manager(disk) as manager:
            manager.node_dir.note_start(count)
            disk = disk.crash() if count == 2 else disk.power_loss()
        disk.capacity_bytes = 0
        node_dir = NodeDir(disk, harness.folder, 0)
        node_dir.open()
        assert (node_dir.starts, node_dir.lost_power) == (count, True)
        node_dir.close(clean=False)


async def test_nothing_is_appended_before_it_can_be_noted_that_the_folder_is_in_use(
    harness: Any, autojump_clock: Any
) -> None:
    """Else nobody would know, after a loss of power, that what was acknowledged may be gone."""
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        harness.append(await harness.open(manager), b"first")
    as_an_earlier_release_left_it(disk, harness)
    disk.capacity_bytes = 0
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        assert [value for _, value in await harness.read_all(log)] == [b"first"]
        # Room for a record and not yet for a node that is full.
        disk.capacity_bytes = disk.size_of(log.store.files.segments[-1].data_path) + 10_000
        await trio.sleep(3)
        with pytest.raises(DiskFullError):
            harness.append(log, b"not noted")
        disk.capacity_bytes = None
        await trio.sleep(3)
        harness.append(log, b"second")
        await log.flush()
        left = disk.power_loss()
    node_dir = NodeDir(left, harness.folder, 0)
    node_dir.open()
    assert node_dir.lost_power


async def test_what_a_start_could_not_note_is_noted_when_there_is_room(harness: Any, autojump_clock: Any) -> None:
    """The next start would take the folder for an older copy, or the loss for one that the cluster does not know."""
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        harness.append(await harness.open(manager), b"first")
        disk = disk.crash()
    as_an_earlier_release_left_it(disk, harness)
    disk.capacity_bytes = 0
    async with harness.manager(disk) as manager:
        manager.node_dir.note_restoration("a")
        manager.node_dir.note_start(7)
        manager.node_dir.settle_loss()
        with pytest.raises(DiskFullError):
            harness.append(await harness.open(manager), b"not noted")
        disk.capacity_bytes = None
        await trio.sleep(3)
        left = disk.crash()
    node_dir = NodeDir(left, harness.folder, 0)
    node_dir.open()
    assert (node_dir.starts, node_dir.lost_power) == (7, False)


async def test_what_comes_to_be_noted_while_a_note_is_written_again_is_noted_too(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk):
        pass
    node_dir = NodeDir(disk, harness.folder, 0, lambda: None)
    node_dir.open()
    as_an_earlier_release_left_it(disk, harness)
    disk.capacity_bytes = 0
    node_dir.note_start(7)
    disk.capacity_bytes = None
    write, written = disk.write_file_atomic, []

    def write_slowly(path: str, *pieces: Any) -> None:
        write(path, *pieces)
        written.append(path)
        if len(written) == 1:
            node_dir.note_start(8)

    monkeypatch.setattr(disk, "write_file_atomic", write_slowly)
    node_dir.note_again()
    assert [path for path in written if path.endswith(NODE_FILE)] == [written[0]] * 2, "one at a time"
    again = NodeDir(disk.crash(), harness.folder, 0)
    again.open()
    assert again.starts == 8


async def test_a_log_that_finds_no_room_to_be_opened_makes_the_node_full(harness: Any, autojump_clock: Any) -> None:
    """So that somebody looks for room, and tells when there is."""
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        harness.append(log, VALUE)
        await log.flush()
        left = disk.crash()
    async with harness.manager(left) as manager:
        left.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.ENOSPC, count=1))
        with pytest.raises(OSError, match="No space left"):
            await harness.open(manager)
        assert manager.context.space.is_full
        with trio.fail_after(5):
            await manager.context.space.until_room()
        harness.append(await harness.open(manager), VALUE)


async def assert_no_gap(harness: Any, log: PartitionLog, count: int) -> None:
    """As the disk is full the cleaner has begun: what retention has left is there, and all that was acknowledged after
    it; what was refused may have found the room.
    """
    found = [offset for offset, _ in await harness.read_all(log)]
    assert found == list(range(found[0], found[-1] + 1))
    assert found[-1] >= count - 1
    assert found[0] <= log.log_start_offset


async def test_a_real_full_disk(harness: Any, tmpfs: Path) -> None:
    harness = type(harness)(str(tmpfs), ManualClock())
    settings = {"disk_reserve_bytes": 2_000_000, "tail_cache_bytes": 0, "segment_bytes": 1_000_000}
    value = os.urandom(50_000)
    async with harness.manager(**settings) as manager:
        await until(lambda: exists(manager.node_dir.reserve_path))
        log = await harness.open(manager, retention_bytes=2_000_000, segment_bytes=1_000_000)
        count = await fill_up(harness, log, value)
        assert count > 80
        await assert_no_gap(harness, log, count)
    async with harness.manager(**settings) as manager:
        log = await harness.open(manager, retention_bytes=2_000_000, segment_bytes=1_000_000)
        await assert_no_gap(harness, log, count)
        with trio.fail_after(30):
            while manager.context.space.is_full or not log.log_start_offset:
                await manager.clean()
                await trio.sleep(0.1)
        harness.append(log, value)
        await log.flush()
        assert log.flushed_end_offset > count
    assert not check_node(RealDisk(), str(tmpfs / "node-0")).is_damaged


async def test_a_truncation_that_finds_no_room_is_whole_all_the_same(harness: Any, autojump_clock: Any) -> None:
    """Only its mark waits for room: the log ends where it was cut, also for its producers."""
    producer = {"producer_id": 9, "producer_epoch": 3}
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        for sequence in range(6):
            harness.append(log, VALUE, base_sequence=sequence, **producer)
        await log.flush()
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.ENOSPC, count=1))
        with pytest.raises(DiskFullError):
            await log.truncate_to(3)
        assert log.log_end_offset == 3
        assert log.producers is not None
        entry = log.producers.get(9)
        assert entry is not None
        assert entry.last_sequence == 2
        await trio.sleep(5)
        assert harness.append(log, VALUE, base_sequence=3, **producer).base_offset == 3
        await log.flush()
    async with harness.manager(disk.crash()) as manager:
        log = await harness.open(manager)
        assert log.log_end_offset == 4
        assert harness.append(log, VALUE, base_sequence=3, **producer).duplicate
