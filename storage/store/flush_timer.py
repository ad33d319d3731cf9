"""The un-flushed limit in time: a store is synced so long after the first write that is not (`flush.ms`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.store.context import StorageContext

__all__ = ["FlushTimer"]

# A limit of so many milliseconds is none.
_NO_LIMIT_MS = 1 << 53


class FlushTimer:
    """Calls `sync` when the most urgent of the topics that were written wants it."""

    __slots__ = ("_context", "_sync", "_sync_at")

    def __init__(self, context: StorageContext, sync: Callable[[], None]) -> None:
        self._context = context
        self._sync = sync
        # By the event loop's clock.
        self._sync_at = math.inf

    def on_written(self, logs: Iterable[PartitionLog]) -> None:
        """A block with parts of these logs was written and not synced."""
        flush_ms = _NO_LIMIT_MS
        for log in logs:
            flush_ms = min(flush_ms, log.config.flush_ms)
        if flush_ms == _NO_LIMIT_MS:
            return
        sync_at = trio.current_time() + flush_ms / 1000
        if sync_at < self._sync_at:
            self._sync_at = sync_at
            self._context.spawn(partial(self._sync_later, sync_at))

    async def _sync_later(self, sync_at: float) -> None:
        await trio.sleep_until(sync_at)
        # Else another topic of the store was in more of a hurry.
        if self._sync_at == sync_at:
            self._sync_at = math.inf
            self._sync()
