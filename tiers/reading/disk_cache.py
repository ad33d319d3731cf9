"""A bounded folder of what was read from the object store, least recently used out first.

It is emptied at the start: what is in it can be had again. Its callers verify the checksum of what it returns, as if it
came from the store. A disk that is full or fails only makes it forget.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Hashable
from itertools import count
from typing import TYPE_CHECKING, Final

from ottla.tiers.offload import Offload, in_a_thread

if TYPE_CHECKING:
    from ottla.storage.disk.disk import Disk
    from ottla.tiers.object_store import Content

__all__ = ["DiskCache"]

logger = logging.getLogger(__name__)

_SUFFIX: Final = ".cached"


class DiskCache:
    """Pieces of objects by key, up to `capacity_bytes` of them. One owner, on one event loop."""

    def __init__(self, disk: Disk, folder: str, capacity_bytes: int, *, offload: Offload = in_a_thread) -> None:
        self._disk = disk
        self._folder = folder
        self._capacity_bytes = capacity_bytes
        self._offload = offload
        self._numbers = count()
        self._entries: OrderedDict[Hashable, tuple[str, int]] = OrderedDict()
        #: Files of dropped entries, which are still to be removed.
        self._doomed: list[str] = []
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    async def open(self) -> None:
        """Create the folder, and remove the files of the last process. Raises OSError."""
        await self._offload(self._empty)

    async def get(self, key: Hashable) -> bytes | None:
        """The piece with this key; None if it is not in the cache."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self._entries.move_to_end(key)
        path, size_bytes = entry
        try:
            content = await self._offload(self._disk.read_file, path)
        except OSError:
            # Removed by another task meanwhile, or the disk cannot read it.
            self.drop(key)
            self.misses += 1
            return None
        if len(content) != size_bytes:
            self.drop(key)
            return None
        self.hits += 1
        return content

    async def put(self, key: Hashable, content: Content) -> None:
        """Keep a piece if there is room on the disk, until newer ones need the space."""
        size_bytes = len(content)
        if size_bytes > self._capacity_bytes or key in self._entries:
            return
        path = os.path.join(self._folder, f"{next(self._numbers)}{_SUFFIX}")
        # Counted before it is written, so that many at a time stay within the capacity as well.
        self._entries[key] = (path, size_bytes)
        self.size_bytes += size_bytes
        doomed = self._take_excess()
        try:
            await self._offload(self._write, path, content, doomed)
        except OSError as error:
            logger.warning("nothing can be kept in %s: %s", self._folder, error)
            self.drop(key)
        if self._entries.get(key, ("", 0))[0] != path:
            # Its entry was dropped during the write.
            self._doomed.append(path)

    def drop(self, key: Hashable) -> None:
        """Forget what turned out to be damaged. Its file goes with the next one that is written."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry[1]
            self._doomed.append(entry[0])

    def _take_excess(self) -> list[str]:
        doomed, self._doomed = self._doomed, []
        while self.size_bytes > self._capacity_bytes:
            _, (path, size_bytes) = self._entries.popitem(last=False)
            self.size_bytes -= size_bytes
            doomed.append(path)
        return doomed

    # In a worker thread.

    def _empty(self) -> None:
        self._disk.mkdir(self._folder)
        for name in self._disk.listdir(self._folder):
            if name.endswith(_SUFFIX):
                self._disk.unlink(os.path.join(self._folder, name))

    def _write(self, path: str, content: Content, doomed: list[str]) -> None:
        for old in doomed:
            try:
                self._disk.unlink(old)
            except FileNotFoundError:
                continue  # its own write has failed, or has not begun
        handle = self._disk.create(path)
        try:
            self._disk.pwritev(handle, [content], 0)
        finally:
            self._disk.close(handle)
