"""The time limit for unsynced data: a store is synced this long after the first unsynced write (`flush.ms`)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

import trio

from ottla.storage.store.context import StorageContext
from ottla.storage.store.memstore import StoreLog

__all__ = ["FlushTimer"]

# A limit of this many milliseconds means no limit.
_NO_LIMIT_MS = 1 << 53


class SyncedWriter(Protocol):
    """The writer of a store."""

    def sync_soon(self) -> None:
        """Bring what was written to the device."""


class FlushTimer:
    """Syncs when the most urgent of the topics that were written wants it. Its store owns it, and closes it.

    There is at most one task, which sleeps until then.
    """

    __slots__ = ("_context", "_is_closed", "_scope", "_sync_at", "_writer")

    def __init__(self, context: StorageContext, writer: SyncedWriter) -> None:
        self._context = context
        self._writer = writer
        # By the event loop's clock.
        self._sync_at = math.inf
        self._scope: trio.CancelScope | None = None
        self._is_closed = False

    def on_written(self, logs: Iterable[StoreLog]) -> None:
        """A block with parts of these logs was written and not synced."""
        flush_ms = _NO_LIMIT_MS
        for log in logs:
            if log.config.flush_ms < flush_ms:
                flush_ms = log.config.flush_ms
        if flush_ms == _NO_LIMIT_MS or self._is_closed:
            return
        sync_at = trio.current_time() + flush_ms / 1000
        if sync_at >= self._sync_at:
            return
        self._sync_at = sync_at
        if self._scope is None:
            self._scope = trio.CancelScope(deadline=sync_at)
            self._context.spawn(self._run)
        else:
            self._scope.deadline = sync_at

    def close(self) -> None:
        """Sync no more."""
        self._is_closed = True
        if self._scope is not None:
            self._scope.cancel()

    async def _run(self) -> None:
        assert self._scope is not None
        try:
            with self._scope:
                await trio.sleep_forever()
        finally:
            self._scope = None
            self._sync_at = math.inf
        if not self._is_closed:
            self._writer.sync_soon()
