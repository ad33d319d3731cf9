"""What is appended in a turn of the event loop is written when it ends: little at once, the rest by the write loop."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest
import trio
import trio.testing

from ottla.storage.config import StorageConfig
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import StoreOfflineError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from tests.storage.held_disk import HeldDisk


async def first_block(harness: Any, log: PartitionLog) -> None:
    """A store's first block makes its file, which may take long and so is left to the write loop."""
    harness.append(log, b"first")
    await log.flush()
    await trio.testing.wait_all_tasks_blocked()
    assert not log.store.writer.is_running


def append_in_one_turn(harness: Any, log: PartitionLog, *values: bytes) -> None:
    for value in values:
        harness.append(log, value)
    log.store.context.turn.end()


async def test_what_is_appended_in_a_turn_is_flushed_by_one_block_when_it_ends(harness: Any) -> None:
    async with harness.manager(SimulatedDisk(1)) as manager:
        logs = [await harness.open(manager, partition) for partition in range(2)]
        await first_block(harness, logs[0])
        blocks = logs[0].store.files.next_sequence
        for value in (b"a", b"b"):
            for log in logs:
                harness.append(log, value)
        assert [log.flushed_end_offset for log in logs] == [1, 0]
        manager.context.turn.end()
        assert [log.flushed_end_offset for log in logs] == [3, 2]
        assert logs[0].store.files.next_sequence == blocks + 1
        assert not logs[0].store.writer.is_running
        assert await harness.read_all(logs[0]) == [(0, b"first"), (1, b"a"), (2, b"b")]


async def test_a_turn_that_nobody_ends_is_ended_by_the_next_one(harness: Any) -> None:
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        harness.append(log, b"a")
        await trio.testing.wait_all_tasks_blocked()
        assert log.flushed_end_offset == 2
        assert not manager.context.turn.is_begun


async def test_what_was_written_at_the_end_of_a_turn_is_there_after_a_crash(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        append_in_one_turn(harness, log, b"a")
        await log.flush()
    async with harness.manager(disk.crash()) as manager:
        log = await harness.open(manager)
        assert await harness.read_all(log) == [(0, b"first"), (1, b"a")]


@pytest.mark.parametrize(
    ("config", "values"),
    [({"flush_messages": 1}, [b"a"]), ({}, [b"x" * 150_000, b"x" * 150_000])],
    ids=["synced", "large"],
)
async def test_the_write_loop_keeps_what_may_take_long(
    harness: Any, config: dict[str, int], values: list[bytes]
) -> None:
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager, **config)
        await first_block(harness, log)
        append_in_one_turn(harness, log, *values)
        assert (log.flushed_end_offset, log.log_end_offset) == (1, 1 + len(values))
        assert log.store.writer.is_running
        await log.store.writer.flush(sync=False)
        assert log.flushed_end_offset == 1 + len(values)


@pytest.mark.parametrize("batch_bytes", [100, 16_000, 65_000])
async def test_a_turn_is_full_while_its_block_can_still_be_written_at_its_end(harness: Any, batch_bytes: int) -> None:
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager)
        turn = manager.context.turn
        await first_block(harness, log)
        while not turn.is_full:
            harness.append(log, b"x" * batch_bytes)
        appended_bytes = log.unwritten_bytes
        turn.end()
        assert (log.flushed_end_offset, log.store.writer.is_running) == (log.log_end_offset, False)
        assert not turn.is_full
        # And it has gathered most of what one call may write.
        assert appended_bytes >= manager.context.config.inline_write_bytes // 2


async def test_a_block_that_is_under_way_is_followed_by_one_with_all_that_came_meanwhile(harness: Any) -> None:
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(), harness.clock)
    async with manager.run():
        log = await harness.open(manager)
        await first_block(harness, log)
        blocks = log.store.files.next_sequence
        disk.hold("pwritev")
        append_in_one_turn(harness, log, b"x" * 300_000)
        await disk.wait_until_held()
        for value in (b"a", b"b", b"c"):
            append_in_one_turn(harness, log, value)
        assert log.flushed_end_offset == 1
        disk.let_go()
        await log.store.writer.flush(sync=False)
        assert (log.flushed_end_offset, log.store.files.next_sequence) == (5, blocks + 2)


async def test_a_loop_that_has_nothing_under_way_keeps_nothing_from_being_written(harness: Any) -> None:
    """Else the appends of a crowd would keep each other in the loop for ever."""
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        log.store.writer.start()
        append_in_one_turn(harness, log, b"a")
        assert log.store.writer.is_running
        assert log.flushed_end_offset == 2


async def test_a_block_that_has_to_wait_comes_before_what_is_appended_later(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EMFILE))
        append_in_one_turn(harness, log, b"a")
        append_in_one_turn(harness, log, b"b")
        assert (log.flushed_end_offset, log.log_end_offset) == (1, 3)
        log.store.writer.try_again()
        await log.flush()
        assert await harness.read_all(log) == [(0, b"first"), (1, b"a"), (2, b"b")]


async def test_a_failed_write_stops_the_store(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO))
        append_in_one_turn(harness, log, b"lost")
        assert (log.flushed_end_offset, log.log_end_offset) == (1, 2)
        with pytest.raises(StoreOfflineError):
            append_in_one_turn(harness, log, b"more")
        with pytest.raises(StoreOfflineError):
            await log.flush()
        assert await harness.read_all(log) == [(0, b"first")]


async def test_a_fault_of_the_listener_stops_the_store_and_not_the_loop(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty:
        def on_flushed(self, logs: Any) -> None:
            raise ZeroDivisionError

        def on_stalled(self, logs: Any) -> None:
            pass

        def on_offline(self, logs: Any, error: Exception) -> None:
            self.error = error

        def on_damaged(self, logs: Any) -> None:
            pass

    listener = Faulty()
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        manager.set_listener(listener)
        append_in_one_turn(harness, log, b"a")
        assert isinstance(listener.error, ZeroDivisionError)
        assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]
        with pytest.raises(StoreOfflineError):
            harness.append(log, b"b")
    assert [record for record in caplog.records if record.levelno > logging.ERROR] == []


async def test_what_was_appended_when_the_store_is_closed_is_dropped(harness: Any) -> None:
    """Nobody was told that it is written; who wants to keep it flushes first."""
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        harness.append(log, b"a")
        log.store.writer.stop()
        manager.context.turn.end()
        assert log.flushed_end_offset == 1
