"""What stands for system calls that a system has not, and a store that runs on them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.disk.system_calls import system_calls
from ottla.storage.log_manager import LogManager
from tests.storage.disk.bare_system import bare_system


@pytest.mark.linux
def test_here_the_system_has_them_all() -> None:
    calls = system_calls()
    assert calls.pwritev is os.pwritev
    assert calls.preadv is os.preadv
    assert calls.fdatasync is os.fdatasync
    assert calls.boot_id() == calls.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_where_nobody_knows_of_boots_each_start_looks_for_itself() -> None:
    assert bare_system().boot_id() != bare_system().boot_id()


def test_a_sync_on_macos_reaches_the_drive() -> None:
    called: list[tuple[int, int]] = []
    control = SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda handle, command: called.append((handle, command)))
    calls = system_calls(SimpleNamespace(pread=os.pread, pwrite=os.pwrite, fsync=os.fsync), control)
    calls.fdatasync(3)
    calls.fsync(4)
    assert called == [(3, 51), (4, 51)]


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_that_knows_no_full_sync_is_synced_as_it_can_be(number: int) -> None:
    synced: list[int] = []
    calls = system_calls(
        SimpleNamespace(fsync=synced.append, pread=os.pread, pwrite=os.pwrite), _refusing_full_sync(number)
    )
    calls.fdatasync(3)
    assert synced == [3]


def test_a_full_sync_that_fails_is_told() -> None:
    calls = system_calls(SimpleNamespace(fsync=pytest.fail), _refusing_full_sync(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        calls.fsync(3)


def _refusing_full_sync(number: int) -> SimpleNamespace:
    def refuse(handle: int, command: int) -> None:
        raise OSError(number, os.strerror(number))

    return SimpleNamespace(F_FULLFSYNC=51, fcntl=refuse)


async def test_a_store_lives_on_what_every_unix_has(harness: Any, tmp_path: Path) -> None:
    values = [b"%d" % number + b"x" * 1000 for number in range(300)]
    for restart in range(2):
        disk = RealDisk(bare_system())
        config = StorageConfig(tail_cache_bytes=0, segment_bytes=100_000)
        manager = LogManager(disk, str(tmp_path / "data"), config, harness.clock)
        async with manager.run():
            log = await manager.open_log(harness.topic_id, "topic", 0, LogConfig())
            if not restart:
                for value in values:
                    harness.append(log, value)
                await log.flush()
                await manager.maintenance.wait_idle()
            assert [value for _, value in await harness.read_all(log)] == values
