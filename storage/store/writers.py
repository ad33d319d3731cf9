"""The descriptors that stores write by: they grow with the topics that are written, up to a bound."""

from __future__ import annotations

from collections import OrderedDict

from ottla.storage.store.file_store import FileStore

__all__ = ["Writers"]


class Writers:
    """Of the stores that are not writing, only the last `capacity` keep their descriptor.

    Only here are the descriptors of running stores closed, and never one that a write is using.
    """

    __slots__ = ("_capacity", "_files", "_last")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._files: OrderedDict[FileStore, None] = OrderedDict()
        self._last: FileStore | None = None

    def __len__(self) -> int:
        """How many stores may have a descriptor open."""
        return len(self._files)

    def use(self, files: FileStore) -> None:
        """A store is about to write."""
        if files is self._last:
            return
        self._last = files
        self._files[files] = None
        self._files.move_to_end(files)
        surplus = len(self._files) - self._capacity
        if surplus > 0:
            for idle in [each for each in self._files if each is not files and not each.is_in_use][:surplus]:
                del self._files[idle]
                idle.close()

    def has_written(self, files: FileStore) -> None:
        """A store's write loop has ended. While many of them wrote at once, no descriptor could be closed."""
        if files in self._files and len(self._files) > self._capacity:
            self.forget(files)

    def shed(self) -> None:
        """Close the descriptors of all stores that are not writing: the process has none left."""
        for idle in [each for each in self._files if not each.is_in_use]:
            del self._files[idle]
            idle.close()
        if self._last not in self._files:
            self._last = None

    def forget(self, files: FileStore) -> None:
        """A store is closed, or needs its descriptor no more."""
        if files is self._last:
            self._last = None
        self._files.pop(files, None)
        files.close()
