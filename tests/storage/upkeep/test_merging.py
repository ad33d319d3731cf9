"""Small rewritten segments become one: the same logs from fewer files, whatever interrupts it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from ottla.storage.config import LogConfig, StoreLayout
from ottla.storage.disk import RealDisk
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import DiskCrashedError, SimulatedDisk
from ottla.storage.format.sealed_index import IndexPage, SealedIndex
from ottla.storage.inspect.fsck import check_node
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.store.file_store import FileStore

COMPACTED = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.01}


def sealed(log: PartitionLog) -> list[int]:
    """The generations of the store's sealed segments."""
    return [segment.generation for segment in log.store.files.segments if segment.is_sealed]


async def fill(harness: Any, logs: list[PartitionLog], count: int, *, keys: int = 4) -> None:
    for number in range(count):
        for log in logs:
            harness.append(log, b"%d:" % number + b"x" * 200, key=b"%d" % (number % keys))
        await logs[0].flush()
    for log in logs:
        log.advance_high_watermark(log.log_end_offset)
    await harness.settle()


async def test_of_many_segments_each_index_is_gone_through_a_few_times(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewrite asks every segment that follows for truncations: of n segments that was n² / 2 times."""
    asked = 0
    all_pages = SealedIndex.all_pages

    def counted(index: SealedIndex) -> Iterator[IndexPage]:
        nonlocal asked
        asked += 1
        return all_pages(index)

    async with harness.manager(segment_bytes=500) as manager:
        log = await harness.open(manager, 0)
        await fill(harness, [log], 60)
        count = len(sealed(log))
        assert count > 25
        monkeypatch.setattr(SealedIndex, "all_pages", counted)
        await manager.clean()
        assert min(sealed(log)) > 0, "nothing was rewritten"
        assert asked < 6 * count
        assert len(await harness.read_all(log)) == 60


@pytest.mark.parametrize("layout", list(StoreLayout))
async def test_what_compaction_leaves_is_merged(harness: Any, layout: StoreLayout) -> None:
    async with harness.manager(segment_bytes=4000, tail_cache_bytes=0, store_layout=layout) as manager:
        logs = [await harness.open(manager, number, **COMPACTED) for number in range(2)]
        await fill(harness, logs, 60)
        count = len(sealed(logs[0]))
        await manager.clean()
        assert len(sealed(logs[0])) <= 3 < count
        records = [await harness.read_all(log) for log in logs]
        assert all(len(found) < 30 for found in records)
        generations = sealed(logs[0])
        await manager.clean()
        assert sealed(logs[0]) == generations
    if layout is StoreLayout.PER_TOPIC:
        assert check_node(RealDisk(), os.path.join(harness.folder, "node-0")).is_sound
    async with harness.manager(segment_bytes=4000, store_layout=layout) as manager:
        logs = [await harness.open(manager, number, **COMPACTED) for number in range(2)]
        assert [await harness.read_all(log) for log in logs] == records
        await fill(harness, logs, 40)
        await manager.clean()
        assert [log.log_end_offset for log in logs] == [100, 100]
        assert {offset for offset, _ in await harness.read_all(logs[1])} >= {96, 97, 98, 99}


async def test_truncations_between_merged_segments_stay_true(harness: Any) -> None:
    """Without a checkpoint only the notes in the data files tell what is void."""
    settings = {"tail_cache_bytes": 0, "rewrite_mean_run_bytes": 1 << 20}
    async with harness.manager(segment_bytes=2500, **settings) as manager:
        logs = [await harness.open(manager, number) for number in range(2)]
        await fill(harness, logs, 12)
        await logs[0].truncate_to(5)
        await logs[1].truncate_fully_and_start_at(40)
        await fill(harness, logs, 12)
        await logs[0].truncate_to(15)
        await fill(harness, logs, 30)
        records = [await harness.read_all(log) for log in logs]
    async with harness.manager(segment_bytes=12_000, **settings) as manager:
        logs = [await harness.open(manager, number) for number in range(2)]
        before = len(sealed(logs[0]))
        await manager.clean()
        assert 2 < len(sealed(logs[0])) < before / 2
        assert [await harness.read_all(log) for log in logs] == records
        directory = logs[0].store.files.directory
    for name in os.listdir(directory):
        if name == "checkpoint" or name.endswith(".index"):
            os.unlink(os.path.join(directory, name))
    async with harness.manager() as manager:
        logs = [await harness.open(manager, number) for number in range(2)]
        assert [await harness.read_all(log) for log in logs] == records
        assert [log.log_start_offset for log in logs] == [0, 40]


async def test_where_records_expire_ages_are_kept_apart(harness: Any) -> None:
    settings = {"tail_cache_bytes": 0, "rewrite_mean_run_bytes": 1 << 20}
    async with harness.manager(segment_bytes=800, **settings) as manager:
        log = await harness.open(manager)
        for _ in range(20):
            await fill(harness, [log], 2)
            harness.clock.advance(100)
    async with harness.manager(**settings) as manager:
        log = await harness.open(manager, segment_ms=1000)
        assert len(sealed(log)) > 30
        for _ in range(3):
            await manager.clean()
            assert len(sealed(log)) == 2
            log.store.released()
        log = await harness.open(manager, segment_ms=1000, compact=True, delete=False, min_cleanable_dirty_ratio=1.0)
        await manager.clean()
        assert len(sealed(log)) == 1


@pytest.mark.parametrize("seed", range(30))
async def test_a_crash_while_merging_leaves_the_same_logs(harness: Any, seed: int) -> None:
    disk = SimulatedDisk(seed)
    settings = {"segment_bytes": 2500, "tail_cache_bytes": 0, "rewrite_mean_run_bytes": 1 << 20}
    async with harness.manager(disk, **settings) as manager:
        logs = [await harness.open(manager, number) for number in range(2)]
        await fill(harness, logs, 30)
        records = [await harness.read_all(log) for log in logs]
        await manager.flush_all()
    disk = disk.crash()
    disk.faults.add(Fault(FaultKind.CRASH, after=60 + seed * 12))
    try:
        async with harness.manager(disk, **settings) as manager:
            logs = [await harness.open(manager, number) for number in range(2)]
            await manager.clean()
    except* (DiskCrashedError, AssertionError):
        assert disk.is_dead
    disk = disk.power_loss()
    async with harness.manager(disk, **settings) as manager:
        logs = [await harness.open(manager, number) for number in range(2)]
        assert [await harness.read_all(log) for log in logs] == records
        await fill(harness, logs, 5)
        await manager.clean()
        assert [(await harness.read_all(log))[:30] for log in logs] == records


async def test_a_full_disk_leaves_the_segments_as_they_were(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk, segment_bytes=2500, tail_cache_bytes=0) as manager:
        log = await harness.open(manager, **COMPACTED)
        await fill(harness, [log], 30)
        before = sealed(log)
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), ".data.new", errno=errno.ENOSPC))
        await manager.clean()
        assert sealed(log) == before
        assert log.store.error is None
        await manager.clean()
        assert len(sealed(log)) < len(before)


async def test_a_nearly_full_disk_is_not_filled_by_the_cleaner(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk, segment_bytes=2500, tail_cache_bytes=0) as manager:
        log = await harness.open(manager, **COMPACTED)
        await fill(harness, [log], 30)
        before = sealed(log)
        disk.capacity_bytes = 1_000_000
        fault = disk.faults.add(Fault(FaultKind.ERROR, frozenset({"create"}), ".data.new", errno=errno.EIO))
        await manager.clean()
        assert (sealed(log), fault.struck, log.store.error) == (before, 0, None)
        disk.capacity_bytes = None
        disk.faults.clear()
        await manager.clean()
        assert len(sealed(log)) < len(before)


async def test_a_deleted_partition_stays_deleted_in_segments_written_anew(harness: Any) -> None:
    """It may be made anew under the same key, and a store without a checkpoint knows it by its data files alone."""
    settings = {"tail_cache_bytes": 0, "rewrite_mean_run_bytes": 1 << 20, "rewrite_dead_ratio": 0.95}
    async with harness.manager(segment_bytes=2500, **settings) as manager:
        logs = [await harness.open(manager, number) for number in range(2)]
        await fill(harness, logs, 12)
        await manager.clean()
        await manager.delete_logs(logs[1].topic_id, [1])
        await fill(harness, logs[:1], 12)
        await manager.clean()
        logs[1] = await harness.open(manager, 1)
        await fill(harness, logs, 3)
        records = [await harness.read_all(log) for log in logs]
        assert [len(found) for found in records] == [27, 3]
        directory = logs[0].store.files.directory
    assert check_node(RealDisk(), os.path.join(harness.folder, "node-0")).is_sound
    os.unlink(os.path.join(directory, "checkpoint"))
    async with harness.manager(segment_bytes=2500, **settings) as manager:
        logs = [await harness.open(manager, number) for number in range(2)]
        assert [await harness.read_all(log) for log in logs] == records


async def test_a_store_that_fails_for_an_unforeseen_reason_holds_up_no_other(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not have what its files have, so it stops; the others are cleaned, and the failure is told."""
    async with harness.manager(segment_bytes=4000, tail_cache_bytes=0) as manager:
        config = LogConfig(compact=True, delete=False, min_cleanable_dirty_ratio=0.01)
        logs = [await manager.open_log(UUID(int=number), f"t{number}", 0, config) for number in (1, 2)]
        for log in logs:
            await fill(harness, [log], 60)
        counts = [len(sealed(log)) for log in logs]
        bad = logs[0].store.files
        exchange = FileStore.exchange

        def planted(files: FileStore, *args: Any) -> None:
            if files is bad:
                raise ZeroDivisionError("planted")
            exchange(files, *args)

        monkeypatch.setattr(FileStore, "exchange", planted)
        with pytest.raises(ExceptionGroup) as caught:
            await manager.clean()
        assert caught.group_contains(ZeroDivisionError, match="planted")
        assert [log.store.is_usable for log in logs] == [False, True]
        assert len(sealed(logs[0])) == counts[0]
        assert len(sealed(logs[1])) < counts[1]
        assert await harness.read_all(logs[0])
