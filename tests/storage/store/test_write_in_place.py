"""What is appended while a store is held is written at once where little is appended, else by the write loop."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import StoreOfflineError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.store.append_crowd import AppendCrowd


async def first_block(harness: Any, log: PartitionLog) -> None:
    """A store's first block makes its file, which may take long and so is left to the write loop."""
    harness.append(log, b"first")
    await log.flush()
    await trio.testing.wait_all_tasks_blocked()
    assert not log.store.writer.is_running


def append_held(harness: Any, log: PartitionLog, *values: bytes, more_expected: bool = False) -> None:
    log.store.writer.hold()
    for value in values:
        harness.append(log, value)
    log.store.writer.write_gathered(more_expected=more_expected)


async def test_a_small_append_is_flushed_when_it_returns(harness: Any) -> None:
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        blocks = log.store.files.next_sequence
        append_held(harness, log, b"a", b"b")
        assert log.flushed_end_offset == 3
        assert log.store.files.next_sequence == blocks + 1
        assert not log.store.writer.is_running
        assert await harness.read_all(log) == [(0, b"first"), (1, b"a"), (2, b"b")]


async def test_what_was_written_in_place_is_there_after_a_crash(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        append_held(harness, log, b"a")
        await log.flush()
    async with harness.manager(disk.crash()) as manager:
        log = await harness.open(manager)
        assert await harness.read_all(log) == [(0, b"first"), (1, b"a")]


@pytest.mark.parametrize(
    ("config", "values", "more_expected"),
    [
        ({"flush_messages": 1}, [b"a"], False),
        ({}, [b"x" * 70_000], False),
        ({}, [b"a"], True),
    ],
    ids=["synced", "large", "more expected"],
)
async def test_the_write_loop_keeps_what_may_take_long(
    harness: Any, config: dict[str, int], values: list[bytes], more_expected: bool
) -> None:
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager, **config)
        await first_block(harness, log)
        append_held(harness, log, *values, more_expected=more_expected)
        assert (log.flushed_end_offset, log.log_end_offset) == (1, 2)
        assert log.store.writer.is_running
        await log.store.writer.flush(sync=False)
        assert log.flushed_end_offset == 2


async def test_an_append_joins_the_block_that_the_loop_is_about_to_write(harness: Any) -> None:
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        blocks = log.store.files.next_sequence
        harness.append(log, b"a")
        append_held(harness, log, b"b")
        assert log.flushed_end_offset == 1
        await log.store.writer.flush(sync=False)
        assert (log.flushed_end_offset, log.store.files.next_sequence) == (3, blocks + 1)


async def test_a_failed_write_in_place_stops_the_store(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO))
        append_held(harness, log, b"lost")
        assert (log.flushed_end_offset, log.log_end_offset) == (1, 2)
        with pytest.raises(StoreOfflineError):
            append_held(harness, log, b"more")
        with pytest.raises(StoreOfflineError):
            await log.flush()
        assert await harness.read_all(log) == [(0, b"first")]


async def test_a_fault_of_the_listener_stops_the_store(harness: Any) -> None:
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
        with pytest.raises(ZeroDivisionError):
            append_held(harness, log, b"a")
        assert isinstance(listener.error, ZeroDivisionError)
        with pytest.raises(StoreOfflineError):
            harness.append(log, b"b")


async def test_a_crowd_shares_a_block(harness: Any) -> None:
    async with harness.manager(SimulatedDisk(1)) as manager:
        log = await harness.open(manager)
        await first_block(harness, log)
        written_alone = 0
        for number in range(200):
            append_held(harness, log, b"%d" % number)
            if log.store.writer.is_running:
                break
            written_alone += 1
        assert written_alone == 64
        blocks = log.store.files.next_sequence
        for _ in range(3):
            for number in range(9):
                append_held(harness, log, b"%d" % number)
            await log.store.writer.flush(sync=False)
            await trio.testing.wait_all_tasks_blocked()
        assert log.store.files.next_sequence == blocks + 3


def test_a_crowd_is_noticed_and_its_end_too() -> None:
    crowd = AppendCrowd()
    for _ in range(64):
        assert crowd.alone_left
        crowd.join()
        crowd.written_alone()
    assert not crowd.alone_left
    for _ in range(4):
        crowd.join()
    crowd.swapped()
    assert not crowd.alone_left
    for _ in range(3):
        crowd.join()
    crowd.swapped()
    assert crowd.alone_left
