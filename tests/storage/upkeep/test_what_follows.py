"""What follows from a cleaning for those who read meanwhile and afterwards, and for those it should leave alone."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
import trio

from ottla.kproto.records import EndTxnMarker, build_end_txn_marker, iter_batches, iter_records
from ottla.storage.config import StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.format.checkpoint import CHECKPOINT_NAME, PartitionState, pack_checkpoint, parse_checkpoint
from ottla.storage.format.segment_list import SEGMENT_LIST_NAME, parse_segment_list
from ottla.storage.log.append_types import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.reading.plan import ReadPlan, read
from tests.storage.held_disk import HeldDisk, is_being_rewritten, until

COMPACTED = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.01}
PRODUCER = 7


def transact(harness: Any, log: PartitionLog, *values: bytes, commit: bool, key: bytes = b"balance") -> None:
    """Append one transaction of the producer, a batch for each value."""
    state = log.producers.get(PRODUCER) if log.producers is not None else None
    sequence = state.last_sequence + 1 if state is not None else 0
    for number, value in enumerate(values):
        harness.append(
            log,
            value,
            key=key,
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=sequence + number,
            is_transactional=True,
        )
    marker = EndTxnMarker(producer_id=PRODUCER, producer_epoch=0, is_commit=commit, coordinator_epoch=0)
    log.append_as_leader(
        memoryview(bytearray(build_end_txn_marker(marker, timestamp_ms=harness.clock.time_ms()))),
        None,
        leader_epoch=0,
        origin=AppendOrigin.COORDINATOR,
        now_ms=harness.clock.time_ms(),
    )


def seen_by_read_committed(plan: ReadPlan, stable_offset: int) -> list[bytes | None]:
    """The values that a read_committed consumer takes out of an answer, as clients do."""
    assert plan.records is not None
    aborted = list(plan.aborted_transactions(stable_offset))
    skipped: set[int] = set()
    values = []
    content = plan.records.to_bytes()
    for pos, header in iter_batches(content):
        while aborted and aborted[0].first_offset <= header.last_offset:
            skipped.add(aborted.pop(0).producer_id)
        if header.is_control:
            skipped.discard(header.producer_id)
            continue
        if header.producer_id in skipped:
            continue
        values += [record.value for record in iter_records(content, pos, header)]
    return values


def aborted_ones(values: list[bytes | None]) -> list[bytes]:
    return [value for value in values if value is not None and value.startswith(b"aborted")]


async def read_committed(log: PartitionLog) -> list[bytes | None]:
    plan = log.plan_read(0, max_bytes=1 << 20, end_offset=log.last_stable_offset, min_one_batch=True)
    await read([plan])
    values = seen_by_read_committed(plan, log.last_stable_offset)
    plan.release()
    return values


async def filled(harness: Any, manager: Any) -> PartitionLog:
    """A log with an aborted transaction in a sealed segment, all of it still in memory."""
    log: PartitionLog = await harness.open(manager, **COMPACTED)
    transact(harness, log, b"100", commit=True)
    transact(harness, log, b"aborted 1", b"aborted 2", commit=False)
    transact(harness, log, b"1", commit=True, key=b"other")
    await log.flush()
    await roll(harness, log)
    return log


async def roll(harness: Any, log: PartitionLog) -> None:
    """Seal what was written up to now."""
    harness.clock.advance(log.config.segment_ms + 1)
    transact(harness, log, b"2", commit=True, key=b"other")
    await log.flush()
    log.advance_high_watermark(log.log_end_offset)
    await harness.settle()


async def test_aborted_records_stay_hidden_after_compaction(harness: Any) -> None:
    async with harness.manager(tail_cache_bytes=1 << 20) as manager:
        log = await filled(harness, manager)
        assert await read_committed(log) == [b"100", b"1", b"2"]
        for _ in range(4):
            await manager.clean()
            assert [
                value for value in await read_committed(log) if value is not None and value.startswith(b"aborted")
            ] == []
            await roll(harness, log)
        assert (await read_committed(log))[:1] == [b"100"]


async def test_what_compaction_removed_is_not_seen_any_more(harness: Any) -> None:
    async with harness.manager(tail_cache_bytes=1 << 20, segment_bytes=2000) as manager:
        log = await harness.open(manager, **COMPACTED)
        for number in range(40):
            harness.append(log, b"%d" % number + b"." * 100, key=b"key")
            await log.flush()
        log.advance_high_watermark(40)
        await harness.settle()
        await manager.clean()
        offsets = [offset for offset, _ in await harness.read_all(log)]
        # One record of the key below the end of what was cleaned, and those that were not yet.
        assert offsets == list(range(log.first_dirty_offset - 1, 40))


async def test_a_read_that_is_overtaken_by_a_cleaning_begins_anew(harness: Any) -> None:
    """Else the records would be those of before, and the index of aborted transactions that of after."""
    disk = HeldDisk()
    manager = LogManager(disk, harness.folder, StorageConfig(tail_cache_bytes=0, inline_read_bytes=0), harness.clock)
    harness.running = manager
    async with manager.run():
        log = await filled(harness, manager)
        stable_offset = log.last_stable_offset
        plan = log.plan_read(0, max_bytes=1 << 20, end_offset=stable_offset, min_one_batch=True)
        async with trio.open_nursery() as nursery:
            disk.hold("preadv")
            nursery.start_soon(read, [plan])
            await disk.wait_until_held()
            disk.held.clear()
            before = log.aborted
            for _ in range(3):
                await manager.clean()
                await roll(harness, log)
            assert log.aborted is not before
            disk.let_go()
        values = seen_by_read_committed(plan, stable_offset)
        plan.release()
        assert values[0] == b"100"
        assert aborted_ones(values) == []


async def test_producers_of_compacted_topics_expire(harness: Any) -> None:
    async with harness.manager(producer_id_expiration_ms=1000) as manager:
        log = await filled(harness, manager)
        assert len(log.active_producers()) == 1
        harness.clock.advance(1001)
        await manager.clean()
        assert log.active_producers() == []
        await manager.maintenance.wait_idle()
    async with harness.manager() as manager:
        log = await harness.open(manager, **COMPACTED)
        assert log.active_producers() == []


async def test_compaction_is_due_when_the_first_dirty_record_is_old(harness: Any) -> None:
    """`max.compaction.lag.ms` counts from the record, and rolls the segment that is written to (KIP-354)."""
    settings = COMPACTED | {"min_cleanable_dirty_ratio": 0.99, "max_compaction_lag_ms": 3000}
    async with harness.manager(tail_cache_bytes=0) as manager:
        log = await harness.open(manager, **settings)
        for number in range(20):
            harness.append(log, b"%d" % number, key=b"key", timestamp_ms=harness.clock.time_ms())
            await log.flush()
        log.advance_high_watermark(log.log_end_offset)
        await manager.clean()
        assert len(await harness.read_all(log)) == 20
        harness.clock.advance(3001)
        harness.append(log, b"newest", key=b"key", timestamp_ms=harness.clock.time_ms())
        await log.flush()
        log.advance_high_watermark(log.log_end_offset)
        await harness.settle()
        await manager.clean()
        assert [value for _, value in await harness.read_all(log)] == [b"19", b"newest"]


async def test_a_truncation_under_a_cleaning_leaves_what_came_after_dirty(harness: Any) -> None:
    async with harness.manager(
        tail_cache_bytes=0, segment_bytes=2000, cleaner_io_max_bytes_per_second=20_000
    ) as manager:
        log = await harness.open(manager, **COMPACTED)
        for number in range(40):
            harness.append(log, b"%d" % number + b"." * 100, key=b"%d" % (number % 3))
            await log.flush()
        log.advance_high_watermark(40)
        await harness.settle()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.clean)
            await until(lambda: is_being_rewritten(log.store.files.directory))
            await log.truncate_to(10)
            for number in range(30):
                harness.append(log, b"again %d" % number, key=b"%d" % (number % 3))
            await log.flush()
        assert log.first_dirty_offset <= 10


def damage(path: str, value: bytes) -> None:
    """Change a byte of the first record with a value."""
    with open(path, "r+b") as file:
        file.seek(file.read().index(value) + 20)
        file.write(b"!")


async def test_damage_to_one_partition_does_not_keep_the_others_from_being_cleaned(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness.manager(tail_cache_bytes=0, segment_bytes=3000) as manager:
        damaged = await harness.open(manager, 0, **COMPACTED)
        sound = await harness.open(manager, 1, **COMPACTED)
        for number in range(30):
            for log in (damaged, sound):
                harness.append(log, b"%d" % number + b"." * 100, key=b"key")
            await sound.flush()
        for log in (damaged, sound):
            log.advance_high_watermark(30)
        await harness.settle()
        segment = sound.store.files.segments[0]
        damage(segment.data_path, b"3" + b"." * 100)
        await manager.clean()
        assert [offset for offset, _ in await harness.read_all(sound)] == list(range(sound.first_dirty_offset - 1, 30))
        assert damaged in sound.store.uncleanable
        assert sound not in sound.store.uncleanable
        assert "damaged" in caplog.text


async def test_the_marker_counts_among_timestamps(harness: Any) -> None:
    """As in Kafka: MAX_TIMESTAMP is the marker's where that is newest, and a lookup by time may find it."""
    async with harness.manager() as manager:
        log = await harness.open(manager)
        before_ms = harness.clock.time_ms()
        harness.append(log, b"value", timestamp_ms=before_ms)
        harness.clock.advance(5000)
        transact(harness, log, b"in a transaction", commit=True)
        await log.flush()
        found = await log.max_timestamp_offset()
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (2, harness.clock.time_ms())
        found = await log.offset_for_timestamp(harness.clock.time_ms())
        assert found is not None
        assert found.offset == 2


async def test_producers_that_a_checkpoint_has_damaged_are_read_from_the_batches(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness.manager() as manager:
        log = await filled(harness, manager)
        expected = [(entry.producer_id, entry.last_sequence) for entry in log.active_producers()]
        aborted = list(log.aborted_transactions(0, log.log_end_offset))
        assert expected
        assert aborted
    path = os.path.join(log.store.files.directory, CHECKPOINT_NAME)
    rewrite_checkpoint(path)
    caplog.set_level(logging.WARNING, "ottla")
    async with harness.manager() as manager:
        log = await harness.open(manager, **COMPACTED)
        assert "the state of its producers is rebuilt from its batches" in caplog.text
        assert [(entry.producer_id, entry.last_sequence) for entry in log.active_producers()] == expected
        assert list(log.aborted_transactions(0, log.log_end_offset)) == aborted


def rewrite_checkpoint(path: str) -> None:
    """Damage what a checkpoint says of producers, and give it the checksum of that."""
    with open(path, "rb") as file:
        point, states = parse_checkpoint(file.read())
    for key, packed in states.items():
        state = PartitionState.parse(packed)
        assert state.producers
        states[key] = state._replace(producers=state.producers[:-1] + b"!").pack()
    with open(path, "wb") as file:
        file.writelines(pack_checkpoint(point, states))


class Witness(RealDisk):
    """Notes how far the log was clean each time that a list of segments was written."""

    def __init__(self) -> None:
        super().__init__()
        self.log: PartitionLog | None = None
        self.seen: list[tuple[int, int]] = []

    def write_file_atomic(self, path: str, *content: bytes) -> None:
        super().write_file_atomic(path, *content)
        if self.log is not None and os.path.basename(path) == SEGMENT_LIST_NAME:
            self.seen.append((len(parse_segment_list(b"".join(content)).segments), self.log.first_dirty_offset))


async def test_what_a_cleaning_has_emptied_is_given_up_before_it_counts_as_clean(harness: Any) -> None:
    """A kill in between: else it would come back, below what is clean, and stay for ever."""
    disk = Witness()
    async with harness.manager(disk, segment_bytes=2000, tail_cache_bytes=0) as manager:
        log = await harness.open(manager, **COMPACTED)
        for _ in range(24):
            harness.append(log, b"x" * 300, key=b"k")
            await log.flush()
        log.advance_high_watermark(log.log_end_offset)
        await manager.maintenance.wait_idle()
        segments = len(log.store.files.segments)
        disk.log = log
        await manager.clean()
        assert len(log.store.files.segments) < segments
        assert log.first_dirty_offset > 0
        first_count, first_dirty_offset = disk.seen[0]
        assert first_count < segments - 1
        assert first_dirty_offset == 0
