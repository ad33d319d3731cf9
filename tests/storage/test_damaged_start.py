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
    write = disk.write_file_atomic
    refused: list[str] = []

    def write_once_refused(path: str, *pieces: Any) -> None:
        if path.endswith("checkpoint") and not refused:
            refused.append(path)
            raise OSError(lacks, os.strerror(lacks))
        write(path, *pieces)

    async with harness.manager(disk) as manager:
        monkeypatch.setattr(disk, "write_file_atomic", write_once_refused)
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
