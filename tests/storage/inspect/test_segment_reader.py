"""A view of a store's files shows what the running store reads: whatever has happened to its logs."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from ottla.kproto.records import EndTxnMarker, build_end_txn_marker, iter_batches, iter_records
from ottla.storage.errors import CorruptLogError
from ottla.storage.inspect.segment_reader import RealDisk, read_piece, split_piece
from ottla.storage.inspect.store_view import (
    PartitionView,
    node_directories,
    offset_for_timestamp,
    store_directories,
    view_store,
)
from ottla.storage.log.partition_log import AppendOrigin, PartitionLog
from ottla.storage.reading.search import TimestampOffset

DISK = RealDisk()
FIRST_TIME_MS = 1_700_000_000_000
Rows = list[tuple[int, bytes | None]]


def views(folder: str) -> dict[int, PartitionView]:
    return {
        view.partition: view
        for node in node_directories(folder)
        for directory in store_directories(DISK, node)
        for view in view_store(DISK, directory)
    }


def rows(view: PartitionView, size_bytes: int = 1 << 20, start: int = 0, end: int = 1 << 62) -> Rows:
    """The records of a view, control records left out, read in parts of about that size."""
    start = max(start, view.log_start_offset)
    return [
        (record.offset, record.value)
        for piece in view.pieces
        for part in split_piece(DISK, piece, size_bytes)
        for content in read_piece(DISK, part, start, end, read_bytes=size_bytes)
        for pos, header in iter_batches(content)
        if not header.is_control
        for record in iter_records(content, pos, header)
        if start <= record.offset < end
    ]


def check(harness: Any, expected: dict[int, Rows]) -> None:
    found = views(harness.folder)
    for number, part in expected.items():
        view = found.pop(number, None)
        assert (rows(view) if view is not None else []) == part
        if view is None or not part:
            continue
        assert rows(view, size_bytes=1) == part
        middle = part[len(part) // 2][0]
        assert rows(view, start=middle, end=middle + 3) == [row for row in part if middle <= row[0] < middle + 3]
    assert not found


def check_times(harness: Any, expected: dict[tuple[int, int], TimestampOffset | None]) -> None:
    """What the running store has found by these times."""
    shown = views(harness.folder)
    for (partition, time), wanted in expected.items():
        view = shown.get(partition)
        found = None if view is None else offset_for_timestamp(DISK, view, time)
        assert found == (None if wanted is None else wanted.offset)


@pytest.mark.parametrize("seed", range(6))
async def test_shows_what_the_running_store_reads(harness: Any, seed: int) -> None:
    """Appends, truncations, log starts, sorted and reclaimed segments, in several partitions, live and closed."""
    chance = random.Random(seed)
    expected: dict[int, Rows] = {}
    for _ in range(3):
        async with harness.manager(segment_bytes=3000, checkpoint_bytes=5000) as manager:
            logs = [await harness.open(manager, number) for number in range(3)]
            for step in range(60):
                log = chance.choice(logs)
                values = [b"%d" % step * chance.randrange(1, 40) for _ in range(chance.randrange(1, 6))]
                harness.append(log, *values, timestamp_ms=FIRST_TIME_MS + chance.randrange(20 * step + 1))
                if chance.random() < 0.5:
                    await log.flush()
                if chance.random() < 0.05:
                    await log.flush()
                    await log.truncate_to(chance.randrange(log.log_start_offset, log.log_end_offset + 1))
                if chance.random() < 0.04:
                    await log.flush()
                    log.advance_high_watermark(log.log_end_offset)
                    await log.advance_log_start_offset(chance.randrange(log.log_start_offset, log.log_end_offset + 1))
                if chance.random() < 0.04:
                    await manager.maintenance.wait_idle()
                    await manager.clean()
            for log in logs:
                await log.flush()
                expected[log.partition] = await harness.read_all(log)
            await manager.maintenance.wait_idle()
            times = range(FIRST_TIME_MS, FIRST_TIME_MS + 1300, 50)
            found = {(log.partition, time): await log.offset_for_timestamp(time) for log in logs for time in times}
            check(harness, expected)
            check_times(harness, found)
        check(harness, expected)
        check_times(harness, found)


async def test_shows_what_compaction_left(harness: Any) -> None:
    settings = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.01}
    async with harness.manager(segment_bytes=3000, tail_cache_bytes=0) as manager:
        log = await harness.open(manager, **settings)
        for number in range(60):
            harness.append(log, b"%d" % number + b"." * 100, key=b"k%d" % (number % 5))
            await log.flush()
        log.advance_high_watermark(60)
        await manager.maintenance.wait_idle()
        await manager.clean()
        await log.store.doomed.remove()
        expected = await harness.read_all(log)
        check(harness, {0: expected})

    assert len(expected) < 60
    check(harness, {0: expected})


def end_transaction(harness: Any, log: PartitionLog, producer_id: int, *, is_commit: bool) -> None:
    marker = EndTxnMarker(producer_id, 0, 0, is_commit)
    log.append_as_leader(
        memoryview(bytearray(build_end_txn_marker(marker, timestamp_ms=1))),
        None,
        leader_epoch=0,
        origin=AppendOrigin.COORDINATOR,
        now_ms=1,
    )


@pytest.mark.parametrize("checkpoint_bytes", [1, 1 << 20])
async def test_knows_aborted_and_open_transactions(harness: Any, checkpoint_bytes: int) -> None:
    async with harness.manager(segment_bytes=3000, checkpoint_bytes=checkpoint_bytes) as manager:
        log = await harness.open(manager)
        aborted = []
        for number in range(30):
            producer = number % 3
            first = harness.append(
                log,
                b"x" * 100,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=number // 3,
                is_transactional=True,
            ).base_offset
            await log.flush()
            end_transaction(harness, log, producer, is_commit=number % 2 == 0)
            if number % 2:
                aborted.append((producer, first, log.log_end_offset - 1))
        opened = harness.append(
            log, b"open", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
        ).base_offset
        harness.append(log, b"after")
        await log.flush()
        await manager.maintenance.wait_idle()
        live = views(harness.folder)[0]
        end = log.log_end_offset
        directory = log.store.files.directory

    stopped = views(harness.folder)[0]
    os.unlink(os.path.join(directory, "checkpoint"))
    for view in (live, stopped, views(harness.folder)[0]):
        assert list(view.aborted) == aborted
        assert (view.last_stable_offset, view.log_end_offset) == (opened, end)


def write(path: str, content: bytes) -> None:
    """Replace what a file holds, not the file: the store has it open."""
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate()


async def test_a_torn_end_is_left_out_and_damage_is_told(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        for number in range(3):
            harness.append(log, b"%d" % number)
            await log.flush()
        path = log.store.files.segments[-1].data_path
        content = DISK.read_file(path)

        write(path, content[:-1])
        torn = rows(views(harness.folder)[0])
        write(path, content[:70] + b"\xff\xff" + content[72:])
        with pytest.raises(CorruptLogError, match="damaged at byte 64"):
            views(harness.folder)
        write(path, content)

    assert [value for _, value in torn] == [b"0", b"1"]
