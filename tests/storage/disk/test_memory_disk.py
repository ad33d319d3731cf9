"""The disk in memory behaves as the operating system's does, and is full when it is full."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.disk import Disk, RealDisk
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.memory_disk import MemoryDisk
from ottla.storage.errors import DataDirLockedError

Make = Callable[[], tuple[Disk, str]]


@pytest.fixture(params=["real", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A disk and an empty folder on it; every test here holds for both kinds."""

    def disk() -> tuple[Disk, str]:
        if request.param == "real":
            return RealDisk(), str(tmp_path)
        memory = MemoryDisk()
        memory.mkdir("/a/folder")
        return memory, "/a/folder"

    return disk


def write(disk: Disk, path: str, content: bytes) -> None:
    handle = disk.create(path)
    disk.pwritev(handle, [content], 0)
    disk.close(handle)


def test_bytes_are_where_they_were_written(make: Make) -> None:
    disk, folder = make()
    handle = disk.create(f"{folder}/f")
    assert disk.pwritev(handle, [b"ab", memoryview(b"cd")], 3) == 4
    first, second = bytearray(5), bytearray(9)
    assert disk.preadv(handle, [memoryview(first), memoryview(second)], 0) == 7
    assert bytes(first + second[:2]) == b"\0\0\0abcd"
    assert disk.size(handle) == 7
    disk.truncate(handle, 4)
    assert disk.size(handle) == 4
    disk.truncate(handle, 6)
    assert disk.read_file(f"{folder}/f") == b"\0\0\0a\0\0"
    disk.fdatasync(handle)
    disk.close(handle)


def test_names_come_and_go(make: Make) -> None:
    disk, folder = make()
    disk.mkdir(f"{folder}/x/y")
    write(disk, f"{folder}/x/y/f", b"1")
    write(disk, f"{folder}/g", b"2")
    assert disk.listdir(folder) == ["g", "x"]
    disk.rename(f"{folder}/x", f"{folder}/z")
    assert disk.listdir(folder) == ["g", "z"]
    assert disk.read_file(f"{folder}/z/y/f") == b"1"
    disk.rename(f"{folder}/g", f"{folder}/z/y/f")
    assert disk.read_file(f"{folder}/z/y/f") == b"2"
    assert disk.is_directory(f"{folder}/z")
    assert not disk.is_directory(f"{folder}/z/y/f")
    disk.fsync_directory(folder)
    disk.rmtree(f"{folder}/z")
    disk.rmtree(f"{folder}/z")
    assert disk.listdir(folder) == []
    assert not disk.exists(f"{folder}/z/y/f")


def test_an_open_file_outlives_its_name(make: Make) -> None:
    disk, folder = make()
    write(disk, f"{folder}/f", b"still")
    handle = disk.open_read(f"{folder}/f")
    disk.unlink(f"{folder}/f")
    content = bytearray(5)
    assert disk.preadv(handle, [memoryview(content)], 0) == 5
    assert content == b"still"
    disk.close(handle)


def test_what_is_not_there_is_not_found(make: Make) -> None:
    disk, folder = make()
    for act in (disk.open_read, disk.open_write, disk.unlink, disk.listdir):
        with pytest.raises(FileNotFoundError):
            act(f"{folder}/absent")
    with pytest.raises(FileNotFoundError):
        disk.create(f"{folder}/absent/f")
    write(disk, f"{folder}/f", b"")
    with pytest.raises(FileExistsError):
        disk.create(f"{folder}/f")
    read_only = disk.open_read(f"{folder}/f")
    with pytest.raises(OSError, match="descriptor"):
        disk.pwritev(read_only, [b"x"], 0)
    disk.close(read_only)


def test_a_lock_is_exclusive_until_it_is_closed(make: Make) -> None:
    disk, folder = make()
    lock = disk.lock(f"{folder}/lock")
    with pytest.raises(DataDirLockedError):
        disk.lock(f"{folder}/lock")
    disk.close(lock)
    disk.close(disk.lock(f"{folder}/lock"))


def test_beyond_its_limit_it_is_full_and_freed_bytes_count_again() -> None:
    disk = MemoryDisk(limit_bytes=100)
    disk.mkdir("/d")
    write(disk, "/d/f", b"x" * 60)
    handle = disk.create("/d/g")
    with pytest.raises(OSError, match="space") as full:
        disk.pwritev(handle, [b"x" * 41], 0)
    assert full.value.errno == errno.ENOSPC
    assert disk.free_bytes("/d") == 40
    disk.unlink("/d/f")
    assert disk.pwritev(handle, [b"x" * 100], 0) == 100
    assert (disk.used_bytes, disk.free_bytes("/d")) == (100, 0)
    disk.close(handle)
    disk.rmtree("/d")
    assert disk.used_bytes == 0


def test_faults_strike_the_operations_they_name() -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    fault = disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO))
    handle = disk.create("/d/f")
    with pytest.raises(OSError, match="Input/output"):
        disk.pwritev(handle, [b"x"], 0)
    assert fault.struck == 1
    assert disk.pwritev(handle, [b"x"], 0) == 1
    disk.close(handle)


@given(
    writes=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 50), st.binary(max_size=20)),
            st.tuples(st.just("truncate"), st.integers(0, 60), st.just(b"")),
        ),
        max_size=20,
    )
)
def test_content_and_size_follow_every_change(writes: list[tuple[str, int, bytes]]) -> None:
    disk = MemoryDisk()
    handle = disk.create("/f")
    expected = bytearray()
    for operation, position, data in writes:
        if operation == "truncate":
            disk.truncate(handle, position)
            expected = expected[:position] + bytes(max(0, position - len(expected)))
        else:
            disk.pwritev(handle, [data], position)
            if data and len(expected) < position:
                expected += bytes(position - len(expected))
            expected[position : position + len(data)] = data
        assert disk.read_file("/f") == bytes(expected)
        assert disk.used_bytes == len(expected)
