"""All logs of a node: the data folder, its stores, and the tasks that write, retain and clean."""

from __future__ import annotations

import logging
import os
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import trio

from ottla.storage.config import LogConfig, StorageConfig, StoreLayout
from ottla.storage.format.block import RunKind, log_key
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.truncation import rebuild_producers, recover_end
from ottla.storage.node_dir import DELETED_SUFFIX, NodeDir, remove_folder
from ottla.storage.reading.spans import ensure_spans
from ottla.storage.start.recovered_logs import restore_state
from ottla.storage.start.recovery import Recovery
from ottla.storage.store.context import RunBlocking, StorageContext
from ottla.storage.store.maintenance import maintain
from ottla.storage.store.message_store import MessageStore
from ottla.storage.upkeep.retention import size_of

if TYPE_CHECKING:
    from ottla.storage.clock import Clock
    from ottla.storage.disk import Disk
    from ottla.storage.upkeep.cleaner import Cleaner

__all__ = ["LogManager", "StorageListener"]

logger = logging.getLogger(__name__)

_SHARED_STORE = "shared"
# A topic's name may have 249 characters and a file's 255: the folder's name keeps what leaves room for the id.
_TOPIC_NAME_CHARACTERS = 200


class StorageListener(Protocol):
    """Who learns of durability. Called synchronously on the event loop: it must not wait nor raise."""

    def on_flushed(self, logs: Sequence[PartitionLog]) -> None:
        """`flushed_end_offset` (or the log start offset) of these logs has moved."""

    def on_offline(self, logs: Sequence[PartitionLog], error: Exception) -> None:
        """The store of these logs has stopped for good: nothing more will be flushed or acknowledged."""


class LogManager:
    """Opens `<data_dir>/node-<id>/`, locks it, and owns every log in it.

    Usage: `manager = LogManager(...); async with manager.run(): log = await manager.open_log(...)`. Entering `run`
    raises DataDirLockedError or UnsupportedFormatError; leaving it writes, syncs and checkpoints everything.
    """

    def __init__(
        self,
        disk: Disk,
        data_dir: str | Path,
        config: StorageConfig,
        clock: Clock,
        *,
        node_id: int = 0,
        listener: StorageListener | None = None,
        run_blocking: RunBlocking = trio.to_thread.run_sync,
    ) -> None:
        self.context = StorageContext(disk, config, clock, run_blocking)
        self.context.listener = listener
        self.node_dir = NodeDir(disk, str(data_dir), node_id)
        self._stores: dict[str, MessageStore] = {}
        self._logs: dict[bytes, PartitionLog] = {}
        self._opening = trio.Lock()

    def set_listener(self, listener: StorageListener) -> None:
        """Register the one listener (before the first append)."""
        self.context.listener = listener

    def set_config(self, config: StorageConfig) -> None:
        """Take changed settings of the cleaner and of producers; sizes of caches and stores stay until a restart."""
        self.context.config = config

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Lock the folder, own the background tasks; on leaving: flush, sync, checkpoint, unlock."""
        context = self.context
        self.node_dir.open()
        context.boot_id = context.disk.boot_id()
        clean = False
        try:
            async with trio.open_nursery() as nursery:
                context.nursery = nursery
                nursery.start_soon(self._keep_clean)
                try:
                    yield
                finally:
                    with trio.CancelScope(shield=True):
                        clean = await self._close_stores()
                    nursery.cancel_scope.cancel()
        finally:
            context.nursery = None
            context.tail.clear()
            context.fd_cache.close()
            self.node_dir.close(clean=clean)

    async def _close_stores(self) -> bool:
        """Bring everything to the disk; False if some store could not."""
        for store in self._stores.values():
            if store.error is None and (store.files.unsynced_bytes or store.dirty or store.active.has_work):
                await maintain(store)
                if store.error is None:
                    await store.flush(sync=True)
        await self.context.maintenance.wait_idle()
        await self.context.remove_doomed_files()
        for store in self._stores.values():
            self.context.forget_writer(store)
        return all(store.error is None for store in self._stores.values())

    async def open_log(self, topic_id: UUID, topic: str, partition: int, config: LogConfig) -> PartitionLog:
        """Create the log or open what is there; the same object for the same partition each time.

        The first log of a store opens it, which recovers it where it was not closed properly.
        """
        key = log_key(topic_id.bytes, partition)
        log = self._logs.get(key)
        if log is None:
            store = await self.open_store(self._store_directory(topic_id, topic, partition))
            log = self._log_of(store, key, topic_id, topic, partition, config)
        log.set_config(config)
        return log

    def _log_of(
        self, store: MessageStore, key: bytes, topic_id: UUID, topic: str, partition: int, config: LogConfig
    ) -> PartitionLog:
        log = store.logs.get(key)
        if log is None:
            log = store.logs[key] = PartitionLog(store, topic_id, topic, partition, config)
            restore_state(log)
        # What was recovered is below the high watermark, also the markers whose transactions awaited it.
        log.set_high_watermark(log.high_watermark)
        log.topic = topic
        self._logs[key] = log
        return log

    def stores(self) -> Iterable[MessageStore]:
        """All open stores."""
        return self._stores.values()

    def get_log(self, topic_id: UUID, partition: int) -> PartitionLog | None:
        """The log if it is open."""
        return self._logs.get(log_key(topic_id.bytes, partition))

    def logs(self) -> Iterable[PartitionLog]:
        """All open logs."""
        return self._logs.values()

    async def delete_logs(self, topic_id: UUID, partitions: Iterable[int]) -> None:
        """Delete open partitions' logs; the last one of a store takes the files with it.

        What a call deletes of a store is one write, and held against the event loop: of a large topic, a few dozen.
        """
        deleted: dict[MessageStore, list[PartitionLog]] = {}
        for partition in partitions:
            log = self._logs.pop(log_key(topic_id.bytes, partition), None)
            if log is not None:
                log.is_closed = True
                deleted.setdefault(log.store, []).append(log)
        for store, logs in deleted.items():
            async with store.lock:
                await self._delete_from(store, logs)

    async def _delete_from(self, store: MessageStore, logs: Sequence[PartitionLog]) -> None:
        if store.error is None and store.active.has_work:
            await store.flush(sync=False)
        for log in logs:
            store.logs.pop(log.key, None)
            store.dirty.pop(log, None)
            store.snapshots.pop(log.key, None)
            log.start_at(0)
        store.released += len(logs)
        if not store.logs and not store.snapshots:
            await self._remove_store(store)
        elif store.error is None:
            for log in logs:
                store.files.truncate_tables(log.key, 0)
                store.add_note(log, RunKind.DELETE, -1, 0)
            await store.flush(sync=False)
            for log in logs:
                store.dirty.pop(log, None)

    async def flush_all(self) -> None:
        """Write and sync all that was appended up to now."""
        for store in list(self._stores.values()):
            if store.error is None and (store.files.unsynced_bytes or store.active.has_work or store.is_writing):
                await store.flush(sync=True)

    @cached_property
    def cleaner(self) -> Cleaner:
        """What the node's background work is done by; loaded when there is some, which a start does not wait for."""
        from ottla.storage.upkeep.cleaner import Cleaner

        return Cleaner(self.context, self._stores.values)

    async def _keep_clean(self) -> None:
        await trio.sleep(self.context.config.cleaner_backoff_ms / 1000)
        await self.context.offload(import_module, "ottla.storage.upkeep.cleaner")
        await self.cleaner.run()

    async def clean(self) -> None:
        """One pass of retention, compaction and reclaiming now, instead of in its time."""
        await self.cleaner.clean()

    @property
    def shared_store_directory(self) -> str:
        """Where the store of all topics is, with `store_layout=shared`."""
        return os.path.join(self.node_dir.path, _SHARED_STORE, "0")

    def _store_directory(self, topic_id: UUID, topic: str, partition: int) -> str:
        config = self.context.config
        if config.store_layout is StoreLayout.SHARED:
            return self.shared_store_directory
        name = urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
        folder = f"{topic[:_TOPIC_NAME_CHARACTERS]}.{name}"
        return os.path.join(self.node_dir.path, folder, str(partition // config.partitions_per_store))

    async def open_store(self, directory: str) -> MessageStore:
        """Open a store, which recovers it where it was not closed properly; the same object each time."""
        async with self._opening:
            store = self._stores.get(directory)
            if store is None:
                store = MessageStore(self.context, directory)
                recovery = Recovery(store)
                await self.context.offload(recovery.run)
                for log in recovery.logs.lost:
                    await recover_end(log)
                for log in recovery.logs.stale:
                    await rebuild_producers(log)
                cut = [*recovery.logs.cut, *recovery.logs.lost]
                await ensure_spans(cut)
                for log in cut:
                    log.size_bytes = size_of(log)
                self._stores[directory] = store
                if recovery.replayed_bytes or recovery.logs.stale:
                    self.context.maintenance.request(store)
            return store

    async def _remove_store(self, store: MessageStore) -> None:
        """Remove a store without partitions: first its name, then its files."""
        disk = self.context.disk
        directory = store.files.directory
        self._stores.pop(directory, None)
        self.context.forget_writer(store)
        self.context.tail.evict_store(store)
        for segment in store.files.segments:
            self.context.fd_cache.drop(segment.data_path)
            self.context.fd_cache.drop(segment.index_path)
        parent, name = os.path.split(directory)
        await self.context.offload(remove_folder, disk, directory, f"{parent}.{name}{DELETED_SUFFIX}")
