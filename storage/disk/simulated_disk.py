"""A disk in memory that crashes, tears and fails, the same way each time for the same seed.

A `SimulatedDisk` is one process's view of a `SimulatedMedia`. When the process dies (`crash`) or the machine does
(`power_loss`) that view is dead for good: whatever still uses it can do no more harm. The new view that is returned is
what a restarted process sees.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Final

from ottla.storage.clock import Clock
from ottla.storage.disk.disk import Disk, Handle
from ottla.storage.disk.faults import Fault, FaultInjector, FaultKind
from ottla.storage.disk.simulated_media import PAGE_BYTES, SimulatedDirectory, SimulatedFile, SimulatedMedia
from ottla.storage.errors import DataDirLockedError
from ottla.storage.memory.iobuf import IOV_MAX

__all__ = ["IS_DEAD", "DiskCrashedError", "Fault", "FaultKind", "SimulatedDisk"]

_UNLIMITED_BYTES = 1 << 50
_WARM_RANGES = 64
_ACT_THEIR_FAULTS = ("pwritev", "fdatasync", "sync_all")


IS_DEAD: Final = "the simulated process is dead"
"""What a disk answers to a process that has died."""


class DiskCrashedError(OSError):
    """The process or machine that used this disk has died; no operation of it has any effect any more."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, IS_DEAD)


@dataclass(slots=True)
class _OpenFile:
    file: SimulatedFile
    path: str
    writable: bool


class SimulatedDisk(Disk):
    """A `Disk` in memory.

    `faults` injects errors, crashes and flipped bits; `capacity_bytes` makes writes end in ENOSPC; reads with
    `nowait` find a random part of what they ask for cold with `cold_probability`, unless `advise_willneed` was called.
    `clock` says when files are written; without one nobody knows.

    A descriptor's number is given out again as soon as it is free, the lowest first, as Linux does. `pause` is called
    before each operation, outside of all locks, so that a simulation can let others run there; a write of more than
    `iov_max` buffers is several operations, as it is several system calls. If an operation began with a descriptor and
    met a different file under its number after such a pause, that is noted in `misdirected`.
    """

    def __init__(
        self,
        seed: int | Random = 0,
        *,
        capacity_bytes: int | None = None,
        cold_probability: float = 0.0,
        media: SimulatedMedia | None = None,
        pause: Callable[[str], None] | None = None,
        iov_max: int = IOV_MAX,
        clock: Clock | None = None,
    ) -> None:
        self.rng = seed if isinstance(seed, Random) else Random(seed)
        self.capacity_bytes = capacity_bytes
        self.cold_probability = cold_probability
        self.pause = pause
        self.iov_max = iov_max
        self.clock = clock
        self.faults = FaultInjector(self.rng)
        self.operation_count = 0
        #: (operation, the path it was meant for, the path that it met)
        self.misdirected: list[tuple[str, str, str]] = []
        self._media = media or SimulatedMedia()
        self._is_dead = False
        self._open_files: dict[Handle, _OpenFile] = {}
        self._next_handle = 3
        self._free_handles: list[Handle] = []
        # What `advise_willneed` has brought into the page cache: for each file the byte ranges.
        self._warm: dict[SimulatedFile, list[range]] = {}
        self._mutex = threading.RLock()

    # Life and death.

    @property
    def is_dead(self) -> bool:
        """Whether the process that used this view has died."""
        return self._is_dead

    @property
    def open_handles(self) -> int:
        """How many handles are open: for leak checks."""
        return len(self._open_files)

    def crash(self) -> SimulatedDisk:
        """The process dies (kill -9): everything it wrote is still there. Returns the next process's view."""
        with self._mutex:
            self._die()
            return self._next_view()

    def power_loss(self, *, flips: Random | None = None) -> SimulatedDisk:
        """The machine dies: only synced data and a random part of the rest is there. Returns the next view.

        With `flips`, which decides where, half of the pages that were not synced have a flipped bit.
        """
        with self._mutex:
            self._die()
            self._media.lose_power(self.rng, flips)
            return self._next_view()

    def flip_bit(self, path: str, bit: int | None = None) -> int:
        """Damage a file at rest, at a random bit by default; returns which."""
        file = self._media.file(path)
        if bit is None:
            bit = self.rng.randrange(len(file.content) * 8)
        file.flip_bit(bit)
        return bit

    def size_of(self, path: str) -> int:
        """The size of a file at rest."""
        return len(self._media.file(path).content)

    def has_unsynced_data(self, path: str) -> bool:
        """Whether a power cut now could change the file's content."""
        return self._media.file(path).has_unsynced_data

    def _next_view(self) -> SimulatedDisk:
        return SimulatedDisk(
            self.rng,
            capacity_bytes=self.capacity_bytes,
            cold_probability=self.cold_probability,
            media=self._media,
            pause=self.pause,
            iov_max=self.iov_max,
            clock=self.clock,
        )

    def _die(self) -> None:
        self._is_dead = True
        self._open_files.clear()
        locks = self._media.locks
        for file in [file for file, owner in locks.items() if owner is self]:
            del locks[file]

    def _let_others_run(self, name: str) -> None:
        if self.pause is not None:
            self.pause(name)

    def _let_others_run_with(self, name: str, handle: Handle) -> None:
        """The same before an operation on a descriptor, which others may meanwhile close and reopen as another file."""
        if self.pause is None:
            return
        meant = self._open_files.get(handle)
        self.pause(name)
        met = self._open_files.get(handle)
        if met is not meant and meant is not None and met is not None:
            self.misdirected.append((name, meant.path, met.path))

    @contextmanager
    def _operation(self, name: str, path: str) -> Iterator[Fault | None]:
        """Run the body as one operation, unless the process is dead or a fault stops it.

        The body gets the faults that it must act out itself: flipped bits, and whatever happens to a write or a sync. A
        crash comes before or after the body.
        """
        with self._mutex:
            if self._is_dead:
                raise DiskCrashedError
            self.operation_count += 1
            fault = self.faults.strike(name, path)
            if fault is not None and name not in _ACT_THEIR_FAULTS:
                if fault.kind is FaultKind.ERROR:
                    raise OSError(fault.errno, os.strerror(fault.errno), path)
                if fault.kind is FaultKind.CRASH and self.rng.random() < 0.5:
                    self._die()
                    raise DiskCrashedError
            yield fault
            if fault is not None and fault.kind is FaultKind.CRASH:
                self._die()
                raise DiskCrashedError

    # Files.

    def open_read(self, path: str) -> Handle:
        self._let_others_run("open_read")
        with self._operation("open_read", path):
            return self._open(self._media.file(path), path, writable=False)

    def open_write(self, path: str) -> Handle:
        self._let_others_run("open_write")
        with self._operation("open_write", path):
            return self._open(self._media.file(path), path, writable=True)

    def create(self, path: str) -> Handle:
        self._let_others_run("create")
        with self._operation("create", path):
            file = SimulatedFile()
            self._modified(file)
            self._media.link(path, file)
            return self._open(file, path, writable=True)

    def close(self, handle: Handle) -> None:
        self._let_others_run_with("close", handle)
        with self._mutex:
            if self._is_dead:
                return
            file = self._opened(handle).file
            del self._open_files[handle]
            heappush(self._free_handles, handle)
            if self._media.locks.get(file) is self:
                del self._media.locks[file]

    def pwritev(self, handle: Handle, buffers: Iterable[memoryview | bytes], position: int) -> int:
        views = list(buffers)
        written = 0
        for first in range(0, max(len(views), 1), self.iov_max):
            self._let_others_run_with("pwritev", handle)
            written += self._pwritev(handle, views[first : first + self.iov_max], position + written)
        return written

    def _pwritev(self, handle: Handle, buffers: Iterable[memoryview | bytes], position: int) -> int:
        opened = self._opened(handle, for_writing=True)
        data = bytearray().join(buffers)
        with self._operation("pwritev", opened.path) as fault:
            room_bytes = self._room_bytes(opened.file, position)
            failing = fault is not None and fault.kind is not FaultKind.FLIP_BIT
            if failing or len(data) > room_bytes:
                opened.file.write(position, data[: min(self.rng.randint(0, len(data)), room_bytes)])
                self._modified(opened.file)
                if fault is None or fault.kind is FaultKind.ERROR:
                    code = errno.ENOSPC if fault is None else fault.errno
                    raise OSError(code, os.strerror(code), opened.path)
                return 0
            if fault is not None and data:
                _flip(data, self.rng)
            opened.file.write(position, data)
            self._modified(opened.file)
            return len(data)

    def preadv(self, handle: Handle, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
        self._let_others_run_with("preadv", handle)
        opened = self._opened(handle)
        with self._operation("preadv", opened.path) as fault:
            wanted = sum(len(buffer) for buffer in buffers)
            is_warm = any(
                position in asked and position + wanted <= asked.stop for asked in self._warm.get(opened.file, ())
            )
            if nowait and not is_warm and self.cold_probability and self.rng.random() < self.cold_probability:
                wanted = self.rng.randint(0, wanted // PAGE_BYTES) * PAGE_BYTES
            data = opened.file.content[position : position + wanted]
            if fault is not None and data:
                _flip(data, self.rng)
            start = 0
            for buffer in buffers:
                piece = data[start : start + len(buffer)]
                buffer[: len(piece)] = piece
                start += len(piece)
            return len(data)

    def advise_willneed(self, handle: Handle, position: int, length: int) -> None:
        self._let_others_run_with("advise_willneed", handle)
        opened = self._opened(handle)
        with self._operation("advise_willneed", opened.path):
            ranges = self._warm.setdefault(opened.file, [])
            for asked in [asked for asked in ranges if asked.start <= position <= asked.stop]:
                ranges.remove(asked)
                position, length = asked.start, max(asked.stop, position + length) - asked.start
            ranges.append(range(position, position + length))
            del ranges[:-_WARM_RANGES]

    def fdatasync(self, handle: Handle) -> None:
        self._let_others_run_with("fdatasync", handle)
        opened = self._opened(handle)
        with self._operation("fdatasync", opened.path) as fault:
            if fault is not None and fault.kind is FaultKind.ERROR:
                opened.file.fail_sync()
                raise OSError(fault.errno, os.strerror(fault.errno), opened.path)
            if fault is None or self.rng.random() < 0.5:
                opened.file.sync()

    def sync_all(self, handle: Handle) -> bool:
        self._let_others_run_with("sync_all", handle)
        opened = self._opened(handle)
        with self._operation("sync_all", opened.path) as fault:
            if fault is not None and fault.kind is FaultKind.ERROR:
                for file in self._media.files():
                    file.fail_sync()
                raise OSError(fault.errno, os.strerror(fault.errno), opened.path)
            if fault is None or self.rng.random() < 0.5:
                self._media.sync()
        return True

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        self._let_others_run_with("truncate", handle)
        opened = self._opened(handle, for_writing=True)
        with self._operation("truncate", opened.path):
            if size_bytes - len(opened.file.content) > self._room_bytes(opened.file, len(opened.file.content)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), opened.path)
            opened.file.truncate(size_bytes)
            self._modified(opened.file)

    def size(self, handle: Handle) -> int:
        self._let_others_run_with("size", handle)
        opened = self._opened(handle)
        with self._operation("size", opened.path):
            return len(opened.file.content)

    def modified_ms(self, handle: Handle) -> int | None:
        with self._mutex:
            if self._is_dead:
                raise DiskCrashedError
            return self._opened(handle).file.modified_ms

    def _modified(self, file: SimulatedFile) -> None:
        file.touch(None if self.clock is None else self.clock.time_ms())

    # Names.

    def fsync_directory(self, path: str) -> None:
        self._let_others_run("fsync_directory")
        with self._operation("fsync_directory", path):
            self._media.sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._let_others_run("rename")
        with self._operation("rename", source):
            self._media.rename(source, target)

    def unlink(self, path: str) -> None:
        self._let_others_run("unlink")
        with self._operation("unlink", path):
            self._media.file(path)
            self._media.unlink(path)

    def exists(self, path: str) -> bool:
        self._let_others_run("exists")
        with self._operation("exists", path):
            return self._media.find(path) is not None

    def is_directory(self, path: str) -> bool:
        self._let_others_run("is_directory")
        with self._operation("is_directory", path):
            return isinstance(self._media.find(path), SimulatedDirectory)

    def listdir(self, path: str) -> list[str]:
        self._let_others_run("listdir")
        with self._operation("listdir", path):
            return sorted(self._media.directory(path).entries)

    def mkdir(self, path: str) -> None:
        self._let_others_run("mkdir")
        with self._operation("mkdir", path):
            made = "/"
            for name in os.path.normpath(path).split("/"):
                made = os.path.join(made, name)
                node = self._media.find(made)
                if node is None:
                    self._media.link(made, SimulatedDirectory())
                elif isinstance(node, SimulatedFile):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), made)

    def rmtree(self, path: str) -> None:
        if not self.exists(path):
            return
        for name in self.listdir(path):
            inner = os.path.join(path, name)
            if self.is_directory(inner):
                self.rmtree(inner)
            else:
                self.unlink(inner)
        with self._operation("rmdir", path):
            self._media.unlink(path)

    def lock(self, path: str) -> Handle:
        self._let_others_run("lock")
        with self._operation("lock", path):
            if self._media.find(path) is None:
                self._media.link(path, SimulatedFile())
            file = self._media.file(path)
            if file in self._media.locks:
                raise DataDirLockedError(f"{path} is locked by another process")
            self._media.locks[file] = self
            return self._open(file, path, writable=True)

    def free_bytes(self, path: str) -> int:
        self._let_others_run("free_bytes")
        with self._operation("free_bytes", path):
            if self.capacity_bytes is None:
                return _UNLIMITED_BYTES
            return max(0, self.capacity_bytes - self._media.used_bytes)

    def boot_id(self) -> str:
        self._let_others_run("boot_id")
        with self._operation("boot_id", ""):
            return f"simulated-boot-{self._media.boots}"

    def _open(self, file: SimulatedFile, path: str, *, writable: bool) -> Handle:
        if self._free_handles:
            handle = heappop(self._free_handles)
        else:
            handle = self._next_handle
            self._next_handle += 1
        self._open_files[handle] = _OpenFile(file, path, writable)
        return handle

    def _opened(self, handle: Handle, *, for_writing: bool = False) -> _OpenFile:
        if self._is_dead:
            raise DiskCrashedError
        opened = self._open_files.get(handle)
        if opened is None or (for_writing and not opened.writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return opened

    def _room_bytes(self, file: SimulatedFile, position: int) -> int:
        """How many bytes a write at `position` may contain."""
        if self.capacity_bytes is None:
            return _UNLIMITED_BYTES
        return max(0, self.capacity_bytes - self._media.used_bytes) + max(0, len(file.content) - position)


def _flip(data: bytearray, rng: Random) -> None:
    bit = rng.randrange(len(data) * 8)
    data[bit // 8] ^= 1 << bit % 8
