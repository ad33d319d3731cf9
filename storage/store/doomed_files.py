"""The files of segments that were replaced, from when nobody reads them until they are removed."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from ottla.storage.errors import LogClosedError

if TYPE_CHECKING:
    from ottla.storage.store.context import StorageContext
    from ottla.storage.store.gate import Gate
    from ottla.storage.store.segment import Segment

__all__ = ["DoomedFiles"]

logger = logging.getLogger(__name__)


class DoomedFiles:
    """Removes them in the background, inside the gate of the store, which owns this; its `close` removes what is left.

    So nothing is removed once the store is closed: by then files of the same names may be those of its successor.
    """

    __slots__ = ("_context", "_gate", "_paths", "_turn")

    def __init__(self, context: StorageContext, gate: Gate) -> None:
        self._context = context
        self._gate = gate
        # A deque, which takes 760 bytes while it is empty, would be a tenth of what a topic without records takes.
        self._paths: list[str] = []
        self._turn = trio.Lock()

    def doom(self, segment: Segment) -> None:
        """Remove the files of a segment that was replaced, as soon as nobody reads them."""
        segment.doom(self._take)

    def _take(self, segment: Segment) -> None:
        # The index first: without a list of segments, one that has no data file means that the data was lost.
        for path in (segment.index_path, segment.data_path):
            self._context.fd_cache.drop(path)
            self._context.damage.forget(path)
            self._paths.append(path)
        if self._context.is_running:
            self._context.spawn(self._remove_inside)

    async def _remove_inside(self) -> None:
        with suppress(LogClosedError), self._gate:
            await self.remove()

    async def remove(self) -> None:
        """Unlink what waits for it, and return when nothing does. What cannot be unlinked is left to the next start."""
        if not self._paths:
            return  # a lock would take a turn of the event loop for each of many stores
        async with self._turn:
            while self._paths:
                path = self._paths[0]
                try:
                    await self._context.offload(self._unlink, path)
                except OSError as error:
                    logger.warning("%s cannot be removed: %s", path, error, extra={"path": path, "error": str(error)})
                del self._paths[0]

    def _unlink(self, path: str) -> None:
        if self._context.disk.exists(path):
            self._context.disk.unlink(path)
