"""The file system of the operating system."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.storage.disk.disk import Disk, Handle
from ottla.storage.disk.private import FILE_MODE, make_private_folder
from ottla.storage.disk.system_calls import SystemCalls, system_calls
from ottla.storage.errors import DataDirLockedError
from ottla.storage.memory.iobuf import IOV_MAX

if TYPE_CHECKING:
    from ottla.storage.disk.page_cache import PageCache

MAX_WRITE_BYTES: Final = 1_048_576
"""How much one call writes. For 2 MiB or more Linux uses huge pages in the page cache. It takes these from contiguous
free memory, which a virtual machine has given back to its host, and getting it back costs 1 s of CPU for each GB.
"""
_LOCK_ATTEMPTS: Final = 5
_LOCK_PAUSE_SECONDS: Final = 0.01


class RealDisk(Disk):
    """The operating system's file system. What it makes, only its owner may read."""

    __slots__ = ("_calls", "_nowait_supported", "_page_cache")

    def __init__(self, calls: SystemCalls | None = None) -> None:
        self._calls = system_calls() if calls is None else calls
        self._nowait_supported = True
        self._page_cache: PageCache | None = None

    def open_read(self, path: str) -> Handle:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open_write(self, path: str) -> Handle:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def create(self, path: str) -> Handle:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)

    def close(self, handle: Handle) -> None:
        os.close(handle)

    def pwritev(self, handle: Handle, buffers: Iterable[memoryview | bytes], position: int) -> int:
        views = list(buffers)
        start = position
        first = 0
        while first < len(views):
            group = views[first : first + IOV_MAX]
            wanted = sum(map(len, group))
            if wanted > MAX_WRITE_BYTES:
                group = _cut(group, MAX_WRITE_BYTES)
            written = self._calls.pwritev(handle, group, position)
            position += written
            if written == wanted and len(group) == len(views):
                break  # as nearly always: all of it in one call
            first = _skip_written(views, first, written)
            if written == 0 and any(len(view) for view in group):
                raise OSError(errno.EIO, "the file system accepts no bytes")
        return position - start

    def preadv(self, handle: Handle, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
        if nowait:
            return self._preadv_nowait(handle, buffers, position)
        views: list[memoryview | bytes] = list(buffers)
        start = position
        first = 0
        while first < len(views):
            count = self._calls.preadv(handle, views[first : first + IOV_MAX], position)
            position += count
            if len(views) == 1 and count == len(views[0]):
                break  # as nearly always: all of it in one call
            first = _skip_written(views, first, count)
            if count == 0:
                break
        return position - start

    def _preadv_nowait(self, handle: Handle, buffers: Sequence[memoryview], position: int) -> int:
        """One attempt: what did not come at once is cold. If the kernel refuses to try, everything is cold."""
        if not self._nowait_supported:
            return 0
        try:
            return self._calls.preadv_nowait(handle, buffers[:IOV_MAX], position)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
                self._nowait_supported = False
                return 0
            raise

    def fdatasync(self, handle: Handle) -> None:
        self._calls.fdatasync(handle)

    def sync_all(self, handle: Handle) -> bool:
        # Imported when needed: it brings ctypes with it.
        from ottla.storage.disk.file_system_sync import sync_file_system

        return sync_file_system(handle)

    def fsync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._calls.fsync(handle)
        finally:
            os.close(handle)

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        os.ftruncate(handle, size_bytes)

    def size(self, handle: Handle) -> int:
        return os.fstat(handle).st_size

    def modified_ms(self, handle: Handle) -> int | None:
        return os.fstat(handle).st_mtime_ns // 1_000_000

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        make_private_folder(Path(path))

    def rmtree(self, path: str) -> None:
        # Imported when needed: it brings the compression libraries with it.
        import shutil

        if os.path.lexists(path):
            shutil.rmtree(path)

    def lock(self, path: str) -> Handle:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            self._lock(handle)
        except BlockingIOError:
            os.close(handle)
            raise DataDirLockedError(f"{path} is locked by another process") from None
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _lock(self, handle: Handle) -> None:
        """Lock a file. Tries more than once: a process that only tests whether it is free holds it for microseconds."""
        for _ in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE_SECONDS)
            else:
                return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    @property
    def sends_files(self) -> bool:
        return self._page_cache is not None and self._page_cache.is_known

    def prepare_sending(self) -> None:
        # Imported when needed: it brings ctypes with it.
        from ottla.storage.disk.page_cache import PageCache

        self._page_cache = PageCache()

    def is_cached(self, handle: Handle, position: int, length: int) -> bool:
        return self._page_cache is not None and self._page_cache.holds(handle, position, length)

    def send(self, handle: Handle, socket: int, position: int, length: int) -> int:
        return os.sendfile(socket, handle, position, length)

    def boot_id(self) -> str:
        return self._calls.boot_id()

    def advise_willneed(self, handle: Handle, position: int, length: int) -> None:
        self._calls.advise_willneed(handle, position, length)


def _cut(views: Sequence[memoryview | bytes], limit_bytes: int) -> list[memoryview | bytes]:
    """As many views as hold this many bytes, the last one cut; together the views must hold more."""
    cut: list[memoryview | bytes] = []
    for view in views:
        if len(view) >= limit_bytes:
            cut.append(memoryview(view)[:limit_bytes])
            break
        cut.append(view)
        limit_bytes -= len(view)
    return cut


def _skip_written(views: list[memoryview | bytes], first: int, count: int) -> int:
    """The index of the first unfinished view after `count` more bytes; a half-finished one is cut in place."""
    while first < len(views) and count >= len(views[first]):
        count -= len(views[first])
        first += 1
    if count:
        views[first] = memoryview(views[first])[count:]
    return first
