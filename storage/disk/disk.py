"""The only way to the file system.

Everything that the storage layer does with files goes through a `Disk`, so that a simulated one can crash, tear and
fail (`ottla.storage.disk.simulated_disk`). All methods are synchronous and may block: callers run small ones inline and
the rest in a worker thread. Errors are the operating system's, as `OSError`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

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
        """Create an empty file and open it for reading and writing; FileExistsError if the name is taken."""

    @abstractmethod
    def close(self, handle: Handle) -> None:
        """Close a file. It promises nothing about its data."""

    @abstractmethod
    def pwritev(self, handle: Handle, buffers: Iterable[memoryview | bytes], position: int) -> int:
        """Write all buffers one after the other, starting at `position`; returns the number of bytes.

        Short writes are continued and long lists split. When it raises, any part may have been written.
        """

    @abstractmethod
    def preadv(self, handle: Handle, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
        """Fill the buffers, starting at `position`; returns the number of bytes, less than requested only at the end of
        file.

        With `nowait` only what the page cache holds is read: fewer bytes (even none) mean that the rest is
        cold, or that the file ends; it never blocks on the device.
        """

    @abstractmethod
    def fdatasync(self, handle: Handle) -> None:
        """Make the file's data and size durable."""

    def sync_all(self, handle: Handle) -> bool:
        """Make everything durable that was written to the file system of an open file: data, sizes and names.

        False if that cannot be known; then nothing is promised. OSError if any write to it has failed since the file
        was opened.
        """
        return False

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
    def modified_ms(self, handle: Handle) -> int | None:
        """When an open file was written to, cut or extended at last, in milliseconds since 1970; None if that is not
        known.
        """

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically; an existing target file is replaced."""

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
        """Make a directory and its missing parents; an existing directory is not an error."""

    @abstractmethod
    def rmtree(self, path: str) -> None:
        """Remove a directory and everything in it; a missing one is not an error."""

    @abstractmethod
    def lock(self, path: str) -> Handle:
        """Hold an exclusive lock on a file, made if missing, until the handle is closed or the process ends.

        Raises DataDirLockedError if it is held already.
        """

    @abstractmethod
    def free_bytes(self, path: str) -> int:
        """How many bytes an unprivileged process may still write to the file system of `path`."""

    @abstractmethod
    def boot_id(self) -> str:
        """An id for this run of the kernel: as long as it is the same, the page cache has survived."""

    @property
    def sends_files(self) -> bool:
        """Whether `is_cached` and `send` are there. Until `prepare_sending` has run they are not."""
        return False

    def prepare_sending(self) -> None:  # noqa: B027 (not every disk can)
        """Load what sending from files needs. Blocks."""

    def is_cached(self, handle: Handle, position: int, length: int) -> bool:
        """Whether the page cache holds this range, so that `send` need not wait for the device. Never blocks."""
        raise NotImplementedError

    def send(self, handle: Handle, socket: int, position: int, length: int) -> int:
        """Send a range to a socket that does not block; returns how many bytes it took, 0 at the end of the file.

        BlockingIOError if it takes none now. It waits for the device if the page cache does not hold the range.
        """
        raise NotImplementedError

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
        """Replace a small file by these pieces. A crash at any moment leaves either the old content whole or the new.

        Durable on return: written beside the old file, synced, renamed, and the directory synced.
        """
        self.rename(self.write_beside(path, *content), path)
        self.fsync_directory(os.path.dirname(path))

    def write_beside(self, path: str, *content: bytes, is_synced: bool = True) -> str:
        """Write what is to replace a small file, durably but for its name if `is_synced`; returns where it is."""
        beside = path + ".tmp"
        if self.exists(beside):
            self.unlink(beside)
        handle = self.create(beside)
        try:
            self.pwritev(handle, content, 0)
            if is_synced:
                self.fdatasync(handle)
        finally:
            self.close(handle)
        return beside
