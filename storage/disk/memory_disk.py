"""A disk in memory: for tests, and for a broker that should leave nothing behind.

It keeps what is written until the process ends, up to a limit, beyond which it is full like a device (ENOSPC). It
cannot survive a power cut, so syncing does nothing; `ottla.storage.disk.simulated_disk` is the one that tears and
crashes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from ottla.storage.clock import Clock, SystemClock
from ottla.storage.disk.disk import Disk, Handle
from ottla.storage.disk.faults import FaultInjector
from ottla.storage.errors import DataDirLockedError

__all__ = ["DEFAULT_LIMIT_BYTES", "MemoryDisk"]

T = TypeVar("T")

DEFAULT_LIMIT_BYTES: Final = 1 << 30


class _File:
    __slots__ = ("content", "is_linked", "is_locked", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.content = bytearray()
        self.modified_ms = modified_ms
        self.is_linked = True
        self.is_locked = False


@dataclass(slots=True)
class _Open:
    file: _File
    path: str
    writable: bool
    holds_lock: bool = False


class MemoryDisk(Disk):
    """A `Disk` whose files are byte arrays; all of them together hold at most `limit_bytes`.

    It may be used from several threads, and by one broker after another, which finds what the first has written.
    `faults` makes operations fail (`FaultKind.ERROR` only), named as the methods are. `clock` says when files are
    written.
    """

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES, clock: Clock | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._clock = clock or SystemClock()
        self.faults = FaultInjector(Random(0))
        self._used_bytes = 0
        self._files: dict[str, _File] = {}
        self._directories: dict[str, set[str]] = {"/": set()}
        self._open_files: dict[Handle, _Open] = {}
        self._next_handle = 3
        self._mutex = threading.RLock()

    @property
    def used_bytes(self) -> int:
        """What all files hold together."""
        return self._used_bytes

    # Files.

    def open_read(self, path: str) -> Handle:
        with self._mutex:
            self._strike("open_read", path)
            return self._open(self._file(path), path, writable=False)

    def open_write(self, path: str) -> Handle:
        with self._mutex:
            self._strike("open_write", path)
            return self._open(self._file(path), path, writable=True)

    def create(self, path: str) -> Handle:
        with self._mutex:
            self._strike("create", path)
            file = _File(self._clock.time_ms())
            self._link(path, file)
            return self._open(file, path, writable=True)

    def close(self, handle: Handle) -> None:
        with self._mutex:
            opened = self._opened(handle)
            del self._open_files[handle]
            if opened.holds_lock:
                opened.file.is_locked = False

    def pwritev(self, handle: Handle, buffers: Iterable[memoryview | bytes], position: int) -> int:
        with self._mutex:
            opened = self._opened(handle, for_writing=True)
            self._strike("pwritev", opened.path)
            views = list(buffers)
            end = position + sum(map(len, views))
            if end == position:
                return 0  # writing nothing does not make a file longer
            self._grow(opened, end)
            at = position
            for view in views:
                opened.file.content[at : at + len(view)] = view
                at += len(view)
            opened.file.modified_ms = self._clock.time_ms()
            return end - position

    def preadv(self, handle: Handle, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
        with self._mutex:
            opened = self._opened(handle)
            self._strike("preadv", opened.path)
            content = opened.file.content
            at = position
            for buffer in buffers:
                count = min(len(buffer), max(0, len(content) - at))
                buffer[:count] = content[at : at + count]
                at += count
            return at - position

    def fdatasync(self, handle: Handle) -> None:
        with self._mutex:
            self._strike("fdatasync", self._opened(handle).path)

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        with self._mutex:
            opened = self._opened(handle, for_writing=True)
            self._strike("truncate", opened.path)
            surplus = len(opened.file.content) - size_bytes
            if surplus > 0:
                del opened.file.content[size_bytes:]
                self._account(opened.file, -surplus)
            else:
                self._grow(opened, size_bytes)
            opened.file.modified_ms = self._clock.time_ms()

    def size(self, handle: Handle) -> int:
        with self._mutex:
            return len(self._opened(handle).file.content)

    def modified_ms(self, handle: Handle) -> int | None:
        with self._mutex:
            return self._opened(handle).file.modified_ms

    # Names.

    def fsync_directory(self, path: str) -> None:
        with self._mutex:
            self._strike("fsync_directory", path)
            self._names(path)

    def rename(self, source: str, target: str) -> None:
        with self._mutex:
            self._strike("rename", source)
            if source == target:
                return
            if source in self._directories:
                self._rename_directory(source, target)
                return
            file = self._file(source)
            self._names(os.path.dirname(target))
            if target in self._files:
                self._unlink(target)
            self._forget_name(source)
            del self._files[source]
            self._link(target, file)

    def _rename_directory(self, source: str, target: str) -> None:
        if target in self._files or self._directories.get(target):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        self._names(os.path.dirname(target)).add(os.path.basename(target))
        self._forget_name(source)
        _move(self._files, source, target)
        _move(self._directories, source, target)

    def unlink(self, path: str) -> None:
        with self._mutex:
            self._strike("unlink", path)
            self._unlink(path)

    def exists(self, path: str) -> bool:
        with self._mutex:
            return path in self._files or path in self._directories

    def is_directory(self, path: str) -> bool:
        with self._mutex:
            return path in self._directories

    def listdir(self, path: str) -> list[str]:
        with self._mutex:
            return sorted(self._names(path))

    def mkdir(self, path: str) -> None:
        with self._mutex:
            self._strike("mkdir", path)
            if path in self._directories:
                return
            if path in self._files:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            parent, name = os.path.split(path)
            self.mkdir(parent)
            self._directories[parent].add(name)
            self._directories[path] = set()

    def rmtree(self, path: str) -> None:
        with self._mutex:
            self._strike("rmtree", path)
            if path not in self._directories:
                return
            self._forget_name(path)
            self._remove_directory(path)

    def _remove_directory(self, path: str) -> None:
        for name in self._directories.pop(path):
            inner = os.path.join(path, name)
            if inner in self._directories:
                self._remove_directory(inner)
            else:
                self._drop(self._files.pop(inner))

    def lock(self, path: str) -> Handle:
        with self._mutex:
            self._strike("lock", path)
            if path not in self._files:
                self._link(path, _File(self._clock.time_ms()))
            file = self._files[path]
            if file.is_locked:
                raise DataDirLockedError(f"{path} is locked already")
            file.is_locked = True
            handle = self._open(file, path, writable=True)
            self._open_files[handle].holds_lock = True
            return handle

    def free_bytes(self, path: str) -> int:
        with self._mutex:
            return max(0, self.limit_bytes - self._used_bytes)

    def boot_id(self) -> str:
        return f"memory-{id(self)}"

    # The tables.

    def _strike(self, operation: str, path: str) -> None:
        fault = self.faults.strike(operation, path)
        if fault is not None:
            raise OSError(fault.errno, os.strerror(fault.errno), path)

    def _file(self, path: str) -> _File:
        file = self._files.get(path)
        if file is None:
            code = errno.EISDIR if path in self._directories else errno.ENOENT
            raise OSError(code, os.strerror(code), path)  # OSError makes the subclass that fits the code
        return file

    def _names(self, path: str) -> set[str]:
        names = self._directories.get(path)
        if names is None:
            code = errno.ENOTDIR if path in self._files else errno.ENOENT
            raise OSError(code, os.strerror(code), path)
        return names

    def _link(self, path: str, file: _File) -> None:
        if path in self._files or path in self._directories:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        parent, name = os.path.split(path)
        self._names(parent).add(name)
        self._files[path] = file

    def _unlink(self, path: str) -> None:
        file = self._file(path)
        self._forget_name(path)
        del self._files[path]
        self._drop(file)

    def _forget_name(self, path: str) -> None:
        parent, name = os.path.split(path)
        self._directories[parent].discard(name)

    def _drop(self, file: _File) -> None:
        """Its name is gone: its bytes no longer count, though open handles may still read them."""
        self._used_bytes -= len(file.content)
        file.is_linked = False

    def _open(self, file: _File, path: str, *, writable: bool) -> Handle:
        handle = self._next_handle
        self._next_handle += 1
        self._open_files[handle] = _Open(file, path, writable)
        return handle

    def _opened(self, handle: Handle, *, for_writing: bool = False) -> _Open:
        opened = self._open_files.get(handle)
        if opened is None or (for_writing and not opened.writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return opened

    def _grow(self, opened: _Open, size_bytes: int) -> None:
        """Make the file at least this long, with zeros; ENOSPC if the disk has no room for that."""
        missing = size_bytes - len(opened.file.content)
        if missing <= 0:
            return
        if missing > self.limit_bytes - self._used_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), opened.path)
        opened.file.content.extend(bytes(missing))
        self._account(opened.file, missing)

    def _account(self, file: _File, change_bytes: int) -> None:
        if file.is_linked:
            self._used_bytes += change_bytes


def _move(table: dict[str, T], source: str, target: str) -> None:
    """Give everything below a directory its new path."""
    for path in [path for path in table if path == source or path.startswith(source + "/")]:
        table[target + path.removeprefix(source)] = table.pop(path)
