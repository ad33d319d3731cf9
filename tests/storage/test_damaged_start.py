"""A start that has found damage, and the start after it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.storage.clock import ManualClock
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import DiskFullError
from ottla.storage.store.maintenance import maintain
from ottla.storage.store.segment_files import LOSS_FILE
from tests.storage.test_damage import cut_in_half, empty, fill


def last_data(folder: Path) -> Path:
    return max(path for path in folder.iterdir() if path.suffix == ".data")


@pytest.mark.parametrize("accident", [Path.unlink, cut_in_half, empty])
@pytest.mark.parametrize("segment_bytes", [3000, 100_000])
async def test_a_kill_does_not_lose_what_came_after_a_loss(
    harness: Any, accident: Callable[[Path], None], segment_bytes: int
) -> None:
    """The last segment is lost, or a part of it; then records are acknowledged, and the node is killed."""
    folder = await fill(harness, segment_bytes=segment_bytes)
    accident(last_data(folder))
    killed = Path(harness.folder) / "killed"
    async with harness.manager(segment_bytes=segment_bytes) as manager:
        logs = [await harness.open(manager, partition) for partition in range(2)]
        assert logs[0].may_lack_records
        ends = [log.log_end_offset for log in logs]
        harness.append(logs[0], b"after")
        await logs[0].flush()
        await harness.settle()
        shutil.copytree(folder.parents[1], killed / folder.parents[1].name)
    harness = type(harness)(str(killed), ManualClock())
    async with harness.manager(segment_bytes=segment_bytes) as manager:
        logs = [await harness.open(manager, partition) for partition in range(2)]
        assert [log.log_end_offset for log in logs] == [ends[0] + 1, ends[1]]
        assert await harness.read_all(logs[0], ends[0]) == [(ends[0], b"after")]


@pytest.mark.parametrize("lacks", [errno.ENOSPC, errno.EMFILE])
async def test_a_store_that_has_lost_records_takes_none_before_its_checkpoint(
    harness: Any, autojump_clock: Any, monkeypatch: Any, lacks: int
) -> None:
    """Without room for the checkpoint the store is not opened yet; without a descriptor, that is waited for."""
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        harness.append(log, b"first")
        await log.flush()
        path = log.store.files.active.data_path
    handle = disk.open_write(path)
    disk.truncate(handle, disk.size(handle) - 10)
    disk.close(handle)
    write = disk.write_beside
    refused: list[str] = []

    def write_once_refused(path: str, *pieces: Any, **options: Any) -> str:
        if path.endswith("checkpoint") and not refused:
            refused.append(path)
            raise OSError(lacks, os.strerror(lacks))
        return write(path, *pieces, **options)

    async with harness.manager(disk) as manager:
        monkeypatch.setattr(disk, "write_beside", write_once_refused)
        if lacks == errno.ENOSPC:
            with pytest.raises(DiskFullError):
                await harness.open(manager)
            await trio.sleep(3)
        log = await harness.open(manager)
        assert refused
        assert log.log_end_offset == 0
        harness.append(log, b"again")
        await log.flush()
        left = disk.crash()
    async with harness.manager(left) as manager:
        assert await harness.read_all(await harness.open(manager)) == [(0, b"again")]


def damage_a_block(folder: Path) -> None:
    """In the middle of what the next start replays."""
    path = last_data(folder)
    content = bytearray(path.read_bytes())
    content[content.index(b"OtBk", len(content) // 2) + 50] ^= 1
    path.write_bytes(bytes(content))


def lose_the_last(folder: Path) -> None:
    path = last_data(folder)
    path.unlink()
    path.with_suffix(".index").unlink(missing_ok=True)


@pytest.mark.parametrize("accident", [damage_a_block, lose_the_last])
@pytest.mark.parametrize("is_in_order", [False, True])
async def test_a_loss_is_known_until_it_is_settled(
    harness: Any, accident: Callable[[Path], None], is_in_order: bool
) -> None:
    """A start that ends before the cluster was told leaves that to the next one. Its checkpoint knows of no damage."""
    folder = Path(harness.folder)
    before, killed = folder / "before", folder / "killed"
    async with harness.manager() as manager:
        log = await harness.open(manager)
        store = Path(log.store.files.directory).relative_to(folder)
        for number in range(20):
            harness.append(log, b"%d" % number)
            await log.flush()
            if number == 5:
                await maintain(log.store)
        shutil.copytree(folder / "node-0", before / "node-0")
    accident(before / store)
    harness = type(harness)(str(before), ManualClock())
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert log.may_lack_records
        await harness.settle()
        shutil.copytree(before / "node-0", killed / "node-0")
    harness = type(harness)(str(before if is_in_order else killed), ManualClock())
    for _ in range(2):
        async with harness.manager() as manager:
            log = await harness.open(manager)
            assert log.may_lack_records
    async with harness.manager() as manager:
        log = await harness.open(manager)
        await log.store.settle_loss()
    async with harness.manager() as manager:
        assert not (await harness.open(manager)).may_lack_records


async def test_nothing_is_appended_before_a_loss_can_be_noted(
    harness: Any, autojump_clock: Any, monkeypatch: Any
) -> None:
    """On a full disk what is left is served. When there is room, the note comes first."""
    disk = SimulatedDisk(1)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        for number in range(20):
            harness.append(log, b"%d" % number)
            await log.flush()
        path = log.store.files.active.data_path
        left = disk.crash()
    content = left.read_file(path)
    handle = left.open_write(path)
    left.pwritev(handle, [b"x"], content.index(b"OtBk", len(content) // 2) + 50)
    left.close(handle)
    write, lacking = left.write_file_atomic, [LOSS_FILE]

    def write_with_room(path: str, *pieces: Any) -> None:
        if path.endswith(tuple(lacking)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, *pieces)

    async with harness.manager(left) as manager:
        monkeypatch.setattr(left, "write_file_atomic", write_with_room)
        log = await harness.open(manager)
        assert log.may_lack_records
        assert (await harness.read_records(log))[0] == (0, b"0")
        await trio.sleep(3)
        with pytest.raises(DiskFullError):
            harness.append(log, b"not noted")
        lacking.clear()
        await trio.sleep(3)
        harness.append(log, b"noted")
        await log.flush()
        await maintain(log.store)
        harness.append(log, b"killed")
        await log.flush()
        again = left.crash()
    async with harness.manager(again) as manager:
        assert (await harness.open(manager)).may_lack_records


@pytest.mark.parametrize("seed", range(5))
async def test_what_made_up_for_a_loss_is_durable_before_the_loss_is_forgotten(harness: Any, seed: int) -> None:
    """A truncation took the damaged end away. If power failed now, it would be there again, and nobody would know."""
    disk = SimulatedDisk(seed)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        for number in range(4):
            harness.append(log, b"%d" % number)
        await log.flush()
        disk.write_file_atomic(f"{log.store.files.directory}/{LOSS_FILE}", b"")
        await log.truncate_to(2)
        await log.store.settle_loss()
        disk.fsync_directory(log.store.files.directory)
        left = disk.power_loss()
    async with harness.manager(left) as manager:
        log = await harness.open(manager)
        assert not log.may_lack_records
        assert log.log_end_offset == 2


@pytest.mark.parametrize("first", ["settle_loss", "doubt"])
async def test_damage_that_is_found_while_a_loss_is_settled_stays_known(harness: Any, first: str) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        harness.append(log, b"0")
        await log.flush()
        async with trio.open_nursery() as nursery:
            for name in (first, *({"settle_loss", "doubt"} - {first})):
                nursery.start_soon(getattr(log.store, name))
                await trio.lowlevel.checkpoint()
    async with harness.manager() as manager:
        assert (await harness.open(manager)).may_lack_records
