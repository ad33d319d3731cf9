"""Watchers of a store that lives in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio

from ottla.metastore.errors import StoreUnavailableError, WatchLaggedError
from ottla.metastore.store import WATCH_BUFFER, Change, KeyValue


class Watcher:
    """One subscription. Its buffer is bounded: on overflow it ends with WatchLaggedError."""

    def __init__(self, prefix: str, after_revision: int, buffer: int) -> None:
        self._prefix = prefix
        self._after_revision = after_revision
        self._send, self._receive = trio.open_memory_channel[Change](buffer)
        self._failure: Exception | None = None

    async def receive(self) -> Change:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            raise self._failure or StoreUnavailableError("The metadata store is closed.") from None

    def receive_nowait(self) -> Change:
        """The next change, if it has come; raises trio.WouldBlock or as `receive`."""
        try:
            return self._receive.receive_nowait()
        except trio.EndOfChannel:
            raise self._failure or StoreUnavailableError("The metadata store is closed.") from None

    def offer(self, change: Change) -> None:
        """Pass on what concerns this watcher."""
        if change.revision <= self._after_revision or self._failure is not None:
            return
        if not all(entry.key.startswith(self._prefix) for entry in change.puts) or not all(
            key.startswith(self._prefix) for key in change.deletes
        ):
            change = Change(
                change.revision,
                tuple(entry for entry in change.puts if entry.key.startswith(self._prefix)),
                tuple(key for key in change.deletes if key.startswith(self._prefix)),
            )
        if not change.puts and not change.deletes:
            return
        try:
            self._send.send_nowait(change)
        except trio.WouldBlock:
            self.fail(WatchLaggedError("The watcher fell behind."))

    def fail(self, error: Exception | None) -> None:
        """End the subscription after what is buffered."""
        self._failure = error
        self._send.close()

    def close(self) -> None:
        self._send.close()
        self._receive.close()


class Watchers:
    """All subscriptions to one store, and its latest changes, so that a watch may begin at an earlier listing."""

    def __init__(self, buffer: int = WATCH_BUFFER) -> None:
        self._buffer = buffer
        self._open: list[Watcher] = []
        self._recent: list[Change] = []
        self._forgotten = 0

    @contextmanager
    def open(self, prefix: str, after_revision: int) -> Iterator[Watcher]:
        watcher = Watcher(prefix, after_revision, self._buffer)
        if after_revision < self._forgotten:
            watcher.fail(WatchLaggedError(f"Revision {after_revision} is no longer known."))
        for change in self._recent:
            watcher.offer(change)
        self._open.append(watcher)
        try:
            yield watcher
        finally:
            self._open.remove(watcher)
            watcher.close()

    def publish(self, revision: int, puts: Sequence[KeyValue], deletes: Sequence[str]) -> None:
        """Tell every watcher what a transaction did."""
        change = Change(revision, tuple(puts), tuple(deletes))
        self._recent.append(change)
        # Halving now and then keeps the cost per change constant.
        if len(self._recent) > self._buffer:
            cut = len(self._recent) // 2
            self._forgotten = self._recent[cut - 1].revision
            del self._recent[:cut]
        for watcher in self._open:
            watcher.offer(change)

    def lag(self) -> None:
        """Changes were missed: end every subscription, so that it begins again from a listing."""
        for watcher in self._open:
            watcher.fail(WatchLaggedError("Changes were missed."))

    def forget_until(self, revision: int) -> None:
        """Changes up to `revision` were made before this process looked; nobody can watch from before them."""
        self._forgotten = revision

    def close(self) -> None:
        """End every subscription."""
        for watcher in self._open:
            watcher.fail(None)
