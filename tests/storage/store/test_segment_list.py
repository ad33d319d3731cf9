"""A store's list of sealed segments: it names them before they are needed, and files go only once it does not."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.format.segment_list import SEGMENT_LIST_NAME, parse_segment_list
from ottla.storage.inspect.fsck import check_node, store_directories
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.store.segment_files import list_segments

SETTINGS: dict[str, Any] = {"segment_bytes": 1000, "cleaner_backoff_ms": 1 << 40, "rewrite_dead_ratio": 2.0}


def listed(disk: Any, log: PartitionLog) -> list[int]:
    content = disk.read_file(f"{log.store.files.directory}/{SEGMENT_LIST_NAME}")
    return [entry.position for entry in parse_segment_list(content).segments]


def sealed(log: PartitionLog) -> list[int]:
    return [segment.position for segment in log.store.files.segments if segment.is_sealed]


async def fill(harness: Any, manager: Any, count: int = 30) -> PartitionLog:
    log: PartitionLog = await harness.open(manager, segment_bytes=1000, delete=True)
    for number in range(count):
        harness.append(log, b"%d" % number + b"x" * 200)
        await log.flush()
        await harness.settle()
    log.advance_high_watermark(log.flushed_end_offset)
    return log


async def test_it_names_what_is_sealed(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk, **SETTINGS) as manager:
        log = await fill(harness, manager)
        assert len(sealed(log)) > 3
        assert listed(disk, log) == sealed(log)
        await log.advance_log_start_offset(15)
        await manager.clean()
        assert listed(disk, log) == sealed(log)
        await log.store.doomed.remove()
        names = disk.listdir(log.store.files.directory)
        kept = {Path(segment.data_path).name for segment in log.store.files.segments}
        assert {name for name in names if name.endswith(".data")} == kept


async def give_up_and_crash(harness: Any, disk: SimulatedDisk, after: int) -> None:
    async with harness.manager(disk, **SETTINGS) as manager:
        log = await fill(harness, manager)
        await log.advance_log_start_offset(15)
        changes = frozenset({"create", "pwritev", "fdatasync", "rename", "unlink"})
        disk.faults.add(Fault(FaultKind.CRASH, changes, after=after))
        await manager.clean()
        await harness.settle()


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("after", range(12))
async def test_a_crash_while_segments_are_given_up_loses_none(
    harness: Any, after: int, power_cut: bool, caplog: Any
) -> None:
    """At each step of writing the list and removing the files."""
    disk = SimulatedDisk(after)
    with suppress(OSError, BaseExceptionGroup):
        await give_up_and_crash(harness, disk, after)
    assert disk.is_dead
    disk = disk.power_loss() if power_cut else disk.crash()
    caplog.clear()
    async with harness.manager(disk, **SETTINGS) as manager:
        log = await harness.open(manager)
        assert [offset for offset, _ in await harness.read_all(log)][-15:] == list(range(15, 30))
        assert not list(manager.context.damage)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_without_a_sound_list_nothing_is_lost(harness: Any, tmp_path: Path, caplog: Any) -> None:
    async with harness.manager(**SETTINGS) as manager:
        log = await fill(harness, manager)
        path = Path(log.store.files.directory) / SEGMENT_LIST_NAME
    whole = path.read_bytes()
    for content in (whole[:-1], b"", bytes([whole[0] ^ 1]) + whole[1:]):
        path.write_bytes(content)
        caplog.clear()
        async with harness.manager(**SETTINGS) as manager:
            log = await harness.open(manager)
            assert len(await harness.read_all(log)) == 30
            assert not list(manager.context.damage)
            assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def rewrite_and_crash(harness: Any, disk: SimulatedDisk) -> None:
    async with harness.manager(disk, **SETTINGS | {"rewrite_dead_ratio": 0.0}) as manager:
        await fill(harness, manager)
        disk.faults.add(Fault(FaultKind.CRASH, frozenset({"rename"}), path_contains=".data.new"))
        await manager.clean()


@pytest.mark.parametrize("content", [None, b""])
async def test_without_a_list_a_half_finished_rewrite_replaces_nothing(harness: Any, content: bytes | None) -> None:
    """Its index is there, its data is not yet: no list is, before the first one is written, or it is damaged."""
    disk = SimulatedDisk(3)
    with suppress(OSError, BaseExceptionGroup):
        await rewrite_and_crash(harness, disk)
    disk = disk.crash()
    (directory,) = store_directories(disk, f"{harness.folder}/node-0")
    assert any(name.endswith("-1.index") for name in disk.listdir(directory)), disk.listdir(directory)
    assert not any(name.endswith("-1.data") for name in disk.listdir(directory))
    disk.unlink(f"{directory}/{SEGMENT_LIST_NAME}")
    if content is not None:
        disk.write_file_atomic(f"{directory}/{SEGMENT_LIST_NAME}", content)
    assert not check_node(disk, f"{harness.folder}/node-0").is_damaged
    async with harness.manager(disk, **SETTINGS) as manager:
        log = await harness.open(manager)
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(30))
        assert not list(manager.context.damage)


async def test_the_last_that_was_given_up_does_not_come_back(harness: Any) -> None:
    """Nothing is listed then, and a kill may have come before its files were removed."""
    disk = SimulatedDisk(1)
    async with harness.manager(disk, **SETTINGS) as manager:
        log = await fill(harness, manager)
        directory = log.store.files.directory
        before = {name: disk.read_file(f"{directory}/{name}") for name in disk.listdir(directory)}
        log.advance_high_watermark(log.log_end_offset)
        tables = log.store.files.segments[-1].tables
        assert tables is not None
        await log.advance_log_start_offset(tables[log.key].base_offset)
        await manager.clean()
        assert listed(disk, log) == sealed(log) == []
        await log.store.doomed.remove()
    names = set(disk.listdir(directory))
    for name in before.keys() - names:
        disk.write_file_atomic(f"{directory}/{name}", before[name])
    assert {
        segment.data_path.rpartition("/")[2] for segment in list_segments(disk, directory, disk.listdir(directory))
    } == {name for name in names if name.endswith(".data")}
