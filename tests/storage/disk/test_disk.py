"""The disk interface: what the real disk and the simulated one promise alike."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.storage.clock import ManualClock
from ottla.storage.disk import Disk, RealDisk
from ottla.storage.disk.memory_disk import MemoryDisk
from ottla.storage.disk.real_disk import MAX_WRITE_BYTES
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.disk.system_calls import Buffers, system_calls
from ottla.storage.errors import DataDirLockedError
from ottla.storage.memory.iobuf import IOV_MAX
from tests.storage.disk.bare_system import bare_system


@dataclass
class Place:
    """A disk and an empty directory on it."""

    disk: Disk
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, content: bytes) -> str:
        handle = self.disk.create(self.path(name))
        self.disk.pwritev(handle, [content], 0)
        self.disk.close(handle)
        return self.path(name)


@pytest.fixture(params=["real", "bare", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "real":
        yield Place(RealDisk(), str(tmp_path))
    elif request.param == "bare":
        yield Place(RealDisk(bare_system()), str(tmp_path))
    else:
        disk = SimulatedDisk()
        disk.mkdir("/data")
        yield Place(disk, "/data")


def read(disk: Disk, handle: int, size: int, position: int, *, nowait: bool = False) -> bytes:
    first, second = bytearray(size // 2), bytearray(size - size // 2)
    count = disk.preadv(handle, [memoryview(first), memoryview(second)], position, nowait=nowait)
    return bytes(first + second)[:count]


def test_one_call_writes_no_more_than_makes_huge_pages(tmp_path: Path) -> None:
    sizes: list[int] = []
    calls = system_calls()

    def pwritev(handle: int, buffers: Buffers, position: int) -> int:
        sizes.append(sum(map(len, buffers)))
        return calls.pwritev(handle, buffers, position)

    disk = RealDisk(calls._replace(pwritev=pwritev))
    pieces: list[memoryview | bytes] = [
        b"a" * 10,
        memoryview(b"b" * (2 * MAX_WRITE_BYTES)),
        b"c" * (MAX_WRITE_BYTES - 10),
        b"d" * 5,
    ]
    path = str(tmp_path / "f")

    assert disk.pwritev(disk.create(path), pieces, 0) == 3 * MAX_WRITE_BYTES + 5

    assert sizes == [MAX_WRITE_BYTES, MAX_WRITE_BYTES, MAX_WRITE_BYTES, 5]
    assert disk.read_file(path) == b"".join(pieces)


class TestFiles:
    def test_writes_and_reads_at_positions(self, place: Place) -> None:
        handle = place.disk.create(place.path("f"))
        assert place.disk.pwritev(handle, [b"abc", memoryview(b"def"), b""], 0) == 6
        assert place.disk.pwritev(handle, [b"XY"], 2) == 2
        assert read(place.disk, handle, 6, 0) == b"abXYef"
        assert read(place.disk, handle, 100, 4) == b"ef"
        assert read(place.disk, handle, 10, 50) == b""
        assert place.disk.size(handle) == 6

    def test_a_gap_reads_as_zeros(self, place: Place) -> None:
        handle = place.disk.create(place.path("f"))
        place.disk.pwritev(handle, [b"end"], 10)
        assert read(place.disk, handle, 13, 0) == bytes(10) + b"end"

    def test_more_buffers_than_one_call_takes(self, place: Place) -> None:
        count = 2 * IOV_MAX + 7
        pieces = [bytes([i % 256]) * 3 for i in range(count)]
        handle = place.disk.create(place.path("f"))
        assert place.disk.pwritev(handle, pieces, 5) == 3 * count
        buffers = [bytearray(3) for _ in range(count)]
        assert place.disk.preadv(handle, [memoryview(buffer) for buffer in buffers], 5) == 3 * count
        assert buffers == pieces

    def test_nothing_to_write_or_read(self, place: Place) -> None:
        handle = place.disk.create(place.path("f"))
        assert place.disk.pwritev(handle, [], 0) == 0
        assert place.disk.pwritev(handle, [b""], 0) == 0
        assert place.disk.preadv(handle, [], 0) == 0

    def test_truncate_cuts_and_extends(self, place: Place) -> None:
        handle = place.disk.create(place.path("f"))
        place.disk.pwritev(handle, [b"abcdef"], 0)
        place.disk.truncate(handle, 2)
        place.disk.truncate(handle, 4)
        place.disk.fdatasync(handle)
        assert place.disk.read_file(place.path("f")) == b"ab\0\0"

    def test_what_was_just_written_reads_without_waiting_or_is_cold(self, place: Place) -> None:
        path = place.write("f", b"x" * 10_000)
        handle = place.disk.open_read(path)
        content = read(place.disk, handle, 10_000, 0, nowait=True)
        assert content == b"x" * len(content)

    def test_a_read_handle_does_not_write(self, place: Place) -> None:
        handle = place.disk.open_read(place.write("f", b"abc"))
        with pytest.raises(OSError, match="Bad file descriptor"):
            place.disk.pwritev(handle, [b"x"], 0)

    def test_open_write_keeps_the_content(self, place: Place) -> None:
        path = place.write("f", b"abc")
        handle = place.disk.open_write(path)
        place.disk.pwritev(handle, [b"X"], 1)
        assert read(place.disk, handle, 3, 0) == b"aXc"

    def test_a_closed_handle_is_refused(self, place: Place) -> None:
        handle = place.disk.create(place.path("f"))
        place.disk.close(handle)
        with pytest.raises(OSError, match="Bad file descriptor"):
            place.disk.size(handle)

    def test_create_refuses_a_taken_name_and_open_a_missing_one(self, place: Place) -> None:
        path = place.write("f", b"")
        with pytest.raises(FileExistsError):
            place.disk.create(path)
        with pytest.raises(FileNotFoundError):
            place.disk.open_read(place.path("missing"))
        with pytest.raises(FileNotFoundError):
            place.disk.open_write(place.path("missing"))
        with pytest.raises(FileNotFoundError):
            place.disk.create(place.path("missing/f"))

    def test_hints_change_nothing(self, place: Place) -> None:
        handle = place.disk.open_read(place.write("f", b"abc"))
        place.disk.advise_willneed(handle, 0, 3)
        assert read(place.disk, handle, 3, 0) == b"abc"


class TestNames:
    def test_directories(self, place: Place) -> None:
        disk = place.disk
        disk.mkdir(place.path("a/b/c"))
        disk.mkdir(place.path("a/b/c"))
        place.write("a/z", b"")
        assert disk.listdir(place.path("a")) == ["b", "z"]
        assert disk.is_directory(place.path("a/b"))
        assert not disk.is_directory(place.path("a/z"))
        assert not disk.is_directory(place.path("missing"))
        disk.fsync_directory(place.path("a"))
        with pytest.raises(FileNotFoundError):
            disk.listdir(place.path("missing"))
        with pytest.raises(FileNotFoundError):
            disk.fsync_directory(place.path("missing"))

    def test_rename_replaces_and_moves_directories(self, place: Place) -> None:
        disk = place.disk
        first, second = place.write("first", b"1"), place.write("second", b"2")
        disk.rename(first, second)
        assert disk.read_file(second) == b"1"
        assert not disk.exists(first)
        disk.mkdir(place.path("dir"))
        disk.rename(second, place.path("dir/inner"))
        disk.rename(place.path("dir"), place.path("moved"))
        assert disk.read_file(place.path("moved/inner")) == b"1"
        with pytest.raises(FileNotFoundError):
            disk.rename(place.path("missing"), place.path("x"))

    def test_unlink_and_rmtree(self, place: Place) -> None:
        disk = place.disk
        disk.mkdir(place.path("a/b"))
        place.write("a/b/f", b"")
        place.write("g", b"")
        disk.unlink(place.path("g"))
        with pytest.raises(FileNotFoundError):
            disk.unlink(place.path("g"))
        disk.rmtree(place.path("a"))
        disk.rmtree(place.path("a"))
        assert disk.listdir(place.root) == []

    def test_an_atomic_write_replaces_the_file_and_leaves_nothing_beside(self, place: Place) -> None:
        path = place.write("f", b"a much longer old content")
        place.write("f.tmp", b"left by a crash")
        place.disk.write_file_atomic(path, b"new")
        assert place.disk.read_file(path) == b"new"
        assert place.disk.listdir(place.root) == ["f"]
        place.disk.write_file_atomic(place.path("empty"), b"")
        assert place.disk.read_file(place.path("empty")) == b""

    def test_free_space_and_boot_id(self, place: Place) -> None:
        assert place.disk.free_bytes(place.root) > 0
        assert place.disk.boot_id() == place.disk.boot_id() != ""

    def test_a_lock_excludes_until_it_is_closed(self, place: Place) -> None:
        handle = place.disk.lock(place.path("lock"))
        with pytest.raises(DataDirLockedError):
            place.disk.lock(place.path("lock"))
        place.disk.close(handle)
        place.disk.close(place.disk.lock(place.path("lock")))


def test_the_time_of_a_real_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    disk = RealDisk()
    handle = disk.open_read(str(path))
    assert disk.modified_ms(handle) == 1_700_000_000_123
    disk.close(handle)


@pytest.mark.parametrize("kind", ["simulated", "memory"])
def test_the_time_of_a_file_is_that_of_the_clock(kind: str) -> None:
    clock = ManualClock(1000)
    disk = SimulatedDisk(clock=clock) if kind == "simulated" else MemoryDisk(clock=clock)
    handle = disk.create("/f")
    assert disk.modified_ms(handle) == 1000
    clock.advance(1)
    disk.pwritev(handle, [b"abc"], 0)
    assert disk.modified_ms(handle) == 1001
    clock.advance(1)
    disk.truncate(handle, 1)
    assert disk.modified_ms(handle) == 1002
    clock.advance(1)
    disk.fdatasync(handle)
    assert disk.read_file("/f") == b"a"
    assert disk.modified_ms(handle) == 1002


def test_without_a_clock_nobody_knows_when_a_file_was_written() -> None:
    disk = SimulatedDisk()
    assert disk.modified_ms(disk.create("/f")) is None


class TestRealDisk:
    def test_a_second_process_finds_the_lock_taken(self, tmp_path: Path) -> None:
        path = str(tmp_path / "lock")
        script = (
            "import sys; from ottla.storage.disk import RealDisk\n"
            "from ottla.storage.errors import DataDirLockedError\n"
            "try: RealDisk().lock(sys.argv[1])\n"
            "except DataDirLockedError: sys.exit(7)\n"
        )
        handle = RealDisk().lock(path)
        assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == 7
        RealDisk().close(handle)
        assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == 0

    def test_short_writes_and_reads_are_continued(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real_pwritev, real_preadv = os.pwritev, os.preadv

        def short_pwritev(handle: int, buffers: list[bytes], position: int) -> int:
            return os.pwrite(handle, b"".join(buffers)[:5], position)

        def short_preadv(handle: int, buffers: list[memoryview], position: int) -> int:
            return real_preadv(handle, [buffers[0][:3]], position)

        monkeypatch.setattr(os, "pwritev", short_pwritev)
        disk = RealDisk()
        handle = disk.create(str(tmp_path / "f"))
        assert disk.pwritev(handle, [b"abcdef", b"", b"gh", b"ijklmnopq"], 0) == 17
        monkeypatch.setattr(os, "pwritev", real_pwritev)
        monkeypatch.setattr(os, "preadv", short_preadv)
        assert read(disk, handle, 20, 0) == b"abcdefghijklmnopq"

    @pytest.mark.linux
    def test_where_the_kernel_refuses_nowait_all_is_cold(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []

        def refuse(handle: int, buffers: object, position: int, flags: int = 0) -> int:
            calls.append(flags)
            raise OSError(95, "Operation not supported")

        disk = RealDisk()
        handle = disk.create(str(tmp_path / "f"))
        disk.pwritev(handle, [b"abc"], 0)
        with monkeypatch.context() as patched:
            patched.setattr(os, "preadv", refuse)
            assert read(disk, handle, 3, 0, nowait=True) == b""
            assert read(disk, handle, 3, 0, nowait=True) == b""
        assert len(calls) == 1
        assert read(disk, handle, 3, 0) == b"abc"

    def test_a_cold_page_is_no_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def cold(*_: object) -> int:
            raise BlockingIOError

        disk = RealDisk()
        handle = disk.create(str(tmp_path / "f"))
        monkeypatch.setattr(os, "preadv", cold)
        assert read(disk, handle, 3, 0, nowait=True) == b""

    def test_a_file_system_that_takes_no_bytes_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "pwritev", lambda *_: 0)
        disk = RealDisk()
        handle = disk.create(str(tmp_path / "f"))
        with pytest.raises(OSError, match="accepts no bytes"):
            disk.pwritev(handle, [b"abc"], 0)
