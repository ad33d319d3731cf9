"""The only door to the file system.

Everything the storage layer does to files goes through a `Disk`, so that a simulated one can crash, tear
and fail (`ottla.storage.simulated_disk`). All methods are synchronous and may block: callers run small ones
inline and the rest in a worker thread. Errors are those of the operating system, as `OSError`.
"""

from __future__ import annotations

import errno
import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from ottla.storage.errors import DataDirLockedError
from ottla.storage.iobuf import IOV_MAX

Handle = int
"""An open file. Only the disk that returned it understands it."""


class Disk(ABC):
    """A file system, as far as storage needs one. Paths are absolute strings.

    What is written is certain to survive a power cut only after `fdatasync` of the file, and a file's name
    only after `fsync_directory` of its directory; what the process wrote survives a mere process crash.
    After `fdatasync` has failed, the file's unsynced content is undefined and a second call proves nothing.
    """

    @abstractmethod
    def open_read(self, path: str) -> Handle:
        """Open an existing file for reading."""

    @abstractmethod
    def open_write(self, path: str) -> Handle:
        """Open an existing file for reading and for writing at given positions."""

    @abstractmethod
    def create(self, path: str) -> Handle:
        """Make an empty file and open it for reading and writing; FileExistsError if the name is taken."""

    @abstractmethod
    def close(self, handle: Handle) -> None:
        """Close a file. It promises nothing about its data."""

    @abstractmethod
    def pwritev(self, handle: Handle, buffers: Iterable[memoryview | bytes], position: int) -> int:
        """Write all buffers one after the other from `position` on; returns the bytes written, which is all.

        Short writes are continued and long lists split. When it raises, any part may have been written.
        """

    @abstractmethod
    def preadv(self, handle: Handle, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
        """Fill the buffers from `position` on; returns the bytes read, fewer than asked only at the end of file.

        With `nowait` only what the page cache holds is read: fewer bytes (even none) mean that the rest is
        cold, or that the file ends; it never blocks on the device.
        """

    @abstractmethod
    def fdatasync(self, handle: Handle) -> None:
        """Make the file's data and size durable."""

    @abstractmethod
    def fsync_directory(self, path: str) -> None:
        """Make the directory's names (creations, renames, removals) durable."""

    @abstractmethod
    def truncate(self, handle: Handle, size_bytes: int) -> None:
        """Cut the file, or extend it with zeros, to a size."""

    @abstractmethod
    def size(self, handle: Handle) -> int:
        """The size of an open file in bytes."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name at once; an existing target file is replaced."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file's name. Open handles keep working."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""

    @abstractmethod
    def is_directory(self, path: str) -> bool:
        """Whether a directory has this name."""

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Make a directory and its missing parents; an existing directory is no error."""

    @abstractmethod
    def rmtree(self, path: str) -> None:
        """Remove a directory and all that is in it; a missing one is no error."""

    @abstractmethod
    def lock(self, path: str) -> Handle:
        """Hold an exclusive lock on a file, made if missing, until the handle is closed or the process ends.

        DataDirLockedError if another holder has it.
        """

    @abstractmethod
    def free_bytes(self, path: str) -> int:
        """What an unprivileged process may still write to the file system of `path`."""

    @abstractmethod
    def boot_id(self) -> str:
        """A name of this run of the kernel: while it is the same, the page cache has survived."""

    def advise_willneed(self, handle: Handle, position: int, length: int) -> None:  # noqa: B027 (a hint)
        """Ask for a range to be read ahead; a hint that may do nothing."""

    def read_file(self, path: str) -> bytes:
        """A small file's whole content."""
        handle = self.open_read(path)
        try:
            content = bytearray(self.size(handle))
            count = self.preadv(handle, [memoryview(content)], 0) if content else 0
        finally:
            self.close(handle)
        return bytes(memoryview(content)[:count])

    def write_file_atomic(self, path: str, *content: bytes) -> None:
        """Replace a small file so that a crash at any moment leaves the old content whole, or the new, these pieces.

        Durable on return: written beside, synced, renamed, the directory synced.
        """
        beside = path + ".tmp"
        if self.exists(beside):
            self.unlink(beside)
        handle = self.create(beside)
        try:
            self.pwritev(handle, content, 0)
            self.fdatasync(handle)
        finally:
            self.close(handle)
        self.rename(beside, path)
        self.fsync_directory(os.path.dirname(path))


class RealDisk(Disk):
    """The operating system's file system."""

    __slots__ = ("_nowait_supported",)

    def __init__(self) -> None:
        self._nowait_supported = hasattr(os, "RWF_NOWAIT")

    def open_read(self, path: str) -> Handle:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open_write(self, path: str) -> Handle:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def create(self, path: str) -> Handle:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def close(self, handle: Handle) -> None:
        os.close(handle)

    def pwritev(self, handle: Handle, buffers: Iterable[memoryview | bytes], position: int) -> int:
        views = list(buffers)
        start = position
        first = 0
        while first < len(views):
            group = views[first : first + IOV_MAX]
            written = os.pwritev(handle, group, position)
            position += written
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
            count = os.preadv(handle, views[first : first + IOV_MAX], position)
            position += count
            first = _skip_written(views, first, count)
            if count == 0:
                break
        return position - start

    def _preadv_nowait(self, handle: Handle, buffers: Sequence[memoryview], position: int) -> int:
        """One attempt: what did not come at once is cold. Where the kernel refuses to try, all is cold."""
        if not self._nowait_supported:
            return 0
        try:
            return os.preadv(handle, buffers[:IOV_MAX], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
                self._nowait_supported = False
                return 0
            raise

    def fdatasync(self, handle: Handle) -> None:
        os.fdatasync(handle)

    def fsync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        os.ftruncate(handle, size_bytes)

    def size(self, handle: Handle) -> int:
        return os.fstat(handle).st_size

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
        os.makedirs(path, exist_ok=True)

    def rmtree(self, path: str) -> None:
        # Imported when needed: it brings the compression libraries with it.
        import shutil

        if os.path.lexists(path):
            shutil.rmtree(path)

    def lock(self, path: str) -> Handle:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise DataDirLockedError(f"{path} is locked by another process") from None
        except BaseException:
            os.close(handle)
            raise
        return handle

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def boot_id(self) -> str:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()

    def advise_willneed(self, handle: Handle, position: int, length: int) -> None:
        os.posix_fadvise(handle, position, length, os.POSIX_FADV_WILLNEED)


def _skip_written(views: list[memoryview | bytes], first: int, count: int) -> int:
    """The index of the first view not yet done after `count` more bytes; a half done one is cut in place."""
    while first < len(views) and count >= len(views[first]):
        count -= len(views[first])
        first += 1
    if count:
        views[first] = memoryview(views[first])[count:]
    return first
