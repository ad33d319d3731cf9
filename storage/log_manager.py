"""All logs of a node: the data folder, its stores, and the tasks that write, retain and clean."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast
from uuid import UUID

import trio

from ottla.runtime.time_slice import TimeSlice
from ottla.storage.clock import Clock
from ottla.storage.config import LogConfig, StorageConfig, StoreLayout
from ottla.storage.disk.disk import Disk
from ottla.storage.disk.passing import RETRY_SECONDS, is_full
from ottla.storage.errors import DiskFullError, LogClosedError, StorageError
from ottla.storage.format.block import RunKind, log_key
from ottla.storage.format.topic_file import topic_folder_name
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.node_dir import DELETED_SUFFIX, NodeDir, remove_folder, store_directories
from ottla.storage.reading.reader import Reader
from ottla.storage.start.opening import begin_to_serve, recover_stores
from ottla.storage.start.recovery import Recovery
from ottla.storage.store.context import RunBlocking, StorageContext, StoreListener
from ottla.storage.store.joint_checkpoint import JointCheckpoint
from ottla.storage.store.maintenance import Maintenance, maintain
from ottla.storage.store.message_store import MessageStore

if TYPE_CHECKING:
    from ottla.storage.upkeep.cleaner import Cleaner
    from ottla.storage.upkeep.scrubber import Scrubber

__all__ = ["Keep", "LogManager", "StorageListener"]

logger = logging.getLogger(__name__)

_SHARED_STORE = "shared"
_ATTEMPTS_AT_CLOSE = 5
# Each waits for a dozen syncs, which a disk that gets several at a time does together.
_CONCURRENT_SYNCS = 8


Keep = Callable[[Callable[[], Awaitable[object]]], Awaitable[None]]
"""Runs a loop, and says what becomes of it when it fails for a reason that nobody foresaw."""


async def _fail_with_it(loop: Callable[[], Awaitable[object]]) -> None:
    await loop()


class StorageListener(Protocol):
    """Who learns of durability. Called synchronously on the event loop: it must not wait nor raise."""

    def on_flushed(self, logs: Sequence[PartitionLog]) -> None:
        """`flushed_end_offset` (or the log start offset) of these logs has moved."""

    def on_stalled(self, logs: Sequence[PartitionLog]) -> None:
        """The disk is full: what these logs were given and is not flushed is not acknowledged for now."""

    def on_offline(self, logs: Sequence[PartitionLog], error: Exception) -> None:
        """The store of these logs has stopped for good: nothing more will be flushed or acknowledged."""

    def on_damaged(self, logs: Sequence[PartitionLog]) -> None:
        """Something was found in the files of these logs that cannot be read. Which of them it hits is not known."""


class LogManager:
    """Opens `<data_dir>/node-<id>/`, locks it, and owns every store and log in it.

    Usage: `manager = LogManager(...); async with manager.run(): log = await manager.open_log(...)`. Entering `run`
    raises DataDirLockedError or UnsupportedFormatError; leaving it writes, syncs and checkpoints everything.

    It moves every store through its life: `open_store` opens, `delete_logs` and the end of `run` close. Its nursery
    owns all tasks of storage; the cleaner, the maintenance and the reader are its own as well.
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
        keep: Keep = _fail_with_it,
    ) -> None:
        """`keep` runs the cleaner and the scrubber; without it, what they raise ends `run`."""
        self._keep = keep
        self.node_dir = NodeDir(disk, str(data_dir), node_id, self._accept_nothing)
        self.context = StorageContext(disk, config, clock, run_blocking, reserve_path=self.node_dir.reserve_path)
        self.reader = Reader(self.context)
        self.maintenance = Maintenance(self.context)
        self._stores: dict[str, MessageStore] = {}
        self._logs: dict[bytes, PartitionLog] = {}
        # All that were opened since the start, by their folders.
        self._opened: set[str] = set()
        self._opening = trio.Lock()
        # By topic's folder: one store of it is opened or deleted at a time, as the last one takes the folder with it.
        self._deleting: dict[str, trio.Event] = {}
        self._opening_in: set[str] = set()
        # How many stores are open in a topic's folder.
        self._open_in: Counter[str] = Counter()
        if listener is not None:
            self.set_listener(listener)

    def set_listener(self, listener: StorageListener) -> None:
        """Register the one listener (before the first append)."""
        # The logs of a store are all of them partition logs.
        self.context.listen(cast("StoreListener", listener))

    def set_config(self, config: StorageConfig) -> None:
        """Take changed settings of the cleaner and of producers; sizes of caches and stores stay until a restart."""
        self.context.configure(config)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Lock the folder, own the background tasks; on leaving: flush, sync, checkpoint, unlock."""
        context = self.context
        self.node_dir.open()
        clean = False
        try:
            async with trio.open_nursery() as nursery:
                context.begin(nursery)
                keeping_clean = trio.CancelScope()
                nursery.start_soon(self._keep_clean, keeping_clean)
                nursery.start_soon(context.space.run)
                nursery.start_soon(context.turn.run)
                try:
                    yield
                finally:
                    keeping_clean.cancel()
                    # Shielded, so that what was appended is kept however the node ends. Each wait is for calls of the
                    # disk, which return; the cleaner, which takes long, is cancelled by the gates that are shut.
                    with trio.CancelScope(shield=True):
                        clean = await self._close_stores()
                    nursery.cancel_scope.cancel()
        finally:
            context.end()
            self.node_dir.close(clean=clean)

    def _accept_nothing(self) -> None:
        """There is no room for the node's note."""
        self.context.space.require(f"{self.node_dir.path} cannot be noted as being in use", self.node_dir.note_again)

    async def _close_stores(self) -> bool:
        """Bring everything to the disk, and close every store; False if some could not be."""
        stores = list(self._stores.values())
        changed = [store for store in stores if _has_changed(store)]
        if len(changed) >= self.context.config.joint_checkpoint_stores:
            await JointCheckpoint(self.context, self.node_dir).take(changed)
        left = iter(stores)

        async def bring_to_disk() -> None:
            for store in left:
                if _has_changed(store):
                    await self._bring_to_disk(store)

        async with trio.open_nursery() as nursery:
            for _ in range(min(len(stores), _CONCURRENT_SYNCS)):
                nursery.start_soon(bring_to_disk)
        await self.maintenance.wait_idle()
        time_slice = TimeSlice()
        for store in stores:
            # To close a store that is at rest takes ten microseconds, and no turn of the event loop.
            await time_slice.maybe_yield()
            await self._close(store)
        are_whole = all(store.error is None and not store.writer.is_stalled for store in stores)
        if are_whole and not self.node_dir.was_clean:
            are_whole = await self.context.offload(self._has_opened_all)
        return are_whole

    def _has_opened_all(self) -> bool:
        """Whether no store is as the last process has left it, which may not have synced what it wrote. Blocks."""
        try:
            return self._opened.issuperset(store_directories(self.context.disk, self.node_dir.path))
        except OSError:
            return False

    async def _bring_to_disk(self, store: MessageStore) -> None:
        """Seal, checkpoint and sync. What finds no room is dropped: it was not acknowledged."""
        for _ in range(_ATTEMPTS_AT_CLOSE):
            if store.writer.is_stalled or await maintain(store):
                break
            await trio.sleep(RETRY_SECONDS)
        if store.is_usable and (store.files.unsynced_bytes or store.writer.has_work):
            try:
                await store.writer.flush(sync=True)
            except DiskFullError as error:
                keys = {"path": store.files.directory, "error": str(error)}
                logger.warning("%s: records that were not acknowledged are dropped: %s", store, error, extra=keys)
            except StorageError:
                pass  # it has stopped meanwhile, and has said so

    async def _close(self, store: MessageStore) -> None:
        """End a store's life, and forget it."""
        self.maintenance.forget(store)
        await store.close()
        if self._stores.pop(store.files.directory, None) is not None:
            folder = _topic_folder(store.files.directory)
            self._open_in[folder] -= 1
            if not self._open_in[folder]:
                del self._open_in[folder]
        for key in store.logs:
            self._logs.pop(key, None)

    async def open_log(self, topic_id: UUID, topic: str, partition: int, config: LogConfig) -> PartitionLog:
        """Create the log or open what is there; the same object for the same partition each time.

        The first log of a store opens it, which recovers it where it was not closed properly.
        """
        key = log_key(topic_id.bytes, partition)
        log = self._logs.get(key)
        if log is None:
            try:
                store = await self.open_store(self._store_directory(topic_id, topic, partition))
                log = await self._log_of(store, key, topic_id, topic, partition, config)
            except OSError as error:
                if is_full(error):
                    self.context.space.filled(error)
                raise
        if log.config is not config:
            log.set_config(config)
        return log

    async def _log_of(
        self, store: MessageStore, key: bytes, topic_id: UUID, topic: str, partition: int, config: LogConfig
    ) -> PartitionLog:
        log = cast("PartitionLog | None", store.logs.get(key))
        if log is None:
            log = PartitionLog(store, self.reader, topic_id, topic, partition, config)
            state = store.snapshots.get(key)
            is_whole = state is None or log.load_state(state)
            store.add_log(log)
            if not is_whole:
                keys = {"topic": topic, "partition": partition}
                logger.warning("%s: the state of its producers is rebuilt from its batches", log, extra=keys)
                await log.rebuild_producers()
        # What was recovered is below the high watermark, also the markers whose transactions awaited it.
        log.set_high_watermark(log.high_watermark)
        log.named(topic)
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
        Everyone who still uses a log gets LogClosedError; what is being written or read of the store's files is waited
        for. Raises StorageError or OSError if the disk refuses: when it is opened again, a log is then what it was, or
        empty.
        """
        deleted: dict[MessageStore, list[PartitionLog]] = {}
        for partition in partitions:
            log = self._logs.pop(log_key(topic_id.bytes, partition), None)
            if log is not None:
                log.close()
                deleted.setdefault(log.store, []).append(log)
        # Shielded: who opens a log that is half deleted would find it closed for good. Each wait is for a call of the
        # disk, or for who holds the store's lock while the disk answers him.
        with trio.CancelScope(shield=True):
            for store, logs in deleted.items():
                async with store.lock:
                    if {*store.logs, *store.snapshots}.issubset(log.key for log in logs):
                        await self._delete_store(store)
                    else:
                        await _delete_from(store, logs)

    async def _delete_store(self, store: MessageStore) -> None:
        """Close a store and remove its folder: first its name, then its files. Who opens it again waits for that."""
        directory = store.files.directory
        topic_folder, name = os.path.split(directory)
        while topic_folder in self._deleting:
            await self._deleting[topic_folder].wait()
        deleted = self._deleting[topic_folder] = trio.Event()
        try:
            await self._close(store)
            is_used = topic_folder in self._opening_in or topic_folder in self._open_in
            doomed = f"{topic_folder}.{name}{DELETED_SUFFIX}"
            remove = partial(remove_folder, with_parent=not is_used)
            await self.context.offload(remove, self.context.disk, directory, doomed)
        finally:
            del self._deleting[topic_folder]
            deleted.set()

    async def flush_all(self) -> None:
        """Write and sync all that was appended up to now."""
        for store in list(self._stores.values()):
            if store.is_usable and (store.files.unsynced_bytes or store.writer.has_work):
                with suppress(LogClosedError):  # deleted meanwhile
                    await store.writer.flush(sync=True)

    @cached_property
    def cleaner(self) -> Cleaner:
        """What the node's background work is done by; loaded when there is some, which a start does not wait for."""
        from ottla.storage.upkeep.cleaner import Cleaner

        return Cleaner(self.context, self._stores)

    @cached_property
    def scrubber(self) -> Scrubber:
        """Who reads the files that nobody reads; loaded with the cleaner."""
        from ottla.storage.upkeep.scrubber import Scrubber

        return Scrubber(self.context, self.node_dir.path, self._stores)

    async def _keep_clean(self, scope: trio.CancelScope) -> None:
        with scope:
            with trio.move_on_after(self.context.config.cleaner_backoff_ms / 1000):
                await self.context.space.until_full()  # what is deleted then is wanted back soon
            await self.context.offload(import_module, "ottla.storage.upkeep.cleaner")
            await self.context.offload(import_module, "ottla.storage.upkeep.scrubber")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep, self.cleaner.run)
                nursery.start_soon(self._keep, self.scrubber.run)

    async def clean(self) -> None:
        """One pass of retention, compaction and reclaiming now, instead of in its time."""
        await self.cleaner.clean()

    async def compact(self) -> None:
        """Compact every compacted log now, with what its active segment holds and however clean it is."""
        await self.cleaner.compact()

    @property
    def shared_store_directory(self) -> str:
        """Where the store of all topics is, with `store_layout=shared`."""
        return os.path.join(self.node_dir.path, _SHARED_STORE, "0")

    def _store_directory(self, topic_id: UUID, topic: str, partition: int) -> str:
        config = self.context.config
        if config.store_layout is StoreLayout.SHARED:
            return self.shared_store_directory
        # Not by os.path.join, which takes longer than all the rest: a start asks twice for each topic.
        folder = topic_folder_name(topic, topic_id)
        return f"{self.node_dir.path}{os.sep}{folder}{os.sep}{partition // config.partitions_per_store}"

    async def open_store(self, directory: str) -> MessageStore:
        """Open a store, which recovers it where it was not closed properly; the same object each time."""
        topic_folder = _topic_folder(directory)
        while True:
            if topic_folder in self._deleting:
                await self._deleting[topic_folder].wait()
                continue
            store = self._stores.get(directory)
            if store is not None:
                return store
            errors = await self._open([directory])
            if errors:
                raise errors[0]

    async def open_ahead(self, partitions: Iterable[tuple[UUID, str, int]]) -> None:
        """Open the stores of logs (topic id, topic, partition) that are about to be opened, by one call of a worker
        thread for all. Where one cannot be opened, `open_log` tries it again, and says why.
        """
        directories = dict.fromkeys(self._store_directory(*partition) for partition in partitions)
        missing = [directory for directory in directories if directory not in self._stores]
        if missing:
            await self._open(missing)

    async def _open(self, directories: Sequence[str]) -> list[StorageError | OSError]:
        """Open those of the stores which are not open, nor in a folder that is being deleted. Returns what failed."""
        errors: list[StorageError | OSError] = []
        async with self._opening:
            stores = [
                MessageStore(self.context, directory, self.maintenance)
                for directory in directories
                if directory not in self._stores and _topic_folder(directory) not in self._deleting
            ]
            self._opening_in = {_topic_folder(store.files.directory) for store in stores}
            try:
                outcomes = await recover_stores(self.context, self.reader, stores)
                for store, outcome in zip(stores, outcomes, strict=True):
                    try:
                        if not isinstance(outcome, Recovery):
                            raise outcome
                        await begin_to_serve(store, outcome, self.maintenance)
                    except (StorageError, OSError) as error:
                        errors.append(error)
                    else:
                        self._stores[store.files.directory] = store
                        self._open_in[_topic_folder(store.files.directory)] += 1
                        self._opened.add(store.files.directory)
            finally:
                self._opening_in = set()
        return errors


def _has_changed(store: MessageStore) -> bool:
    return store.is_usable and bool(store.files.unsynced_bytes or store.dirty or store.writer.has_work)


def _topic_folder(directory: str) -> str:
    """The folder in which a store's folder is. Not by os.path.dirname, which takes five times as long."""
    return directory[: directory.rindex(os.sep)]


async def _delete_from(store: MessageStore, logs: Sequence[PartitionLog]) -> None:
    """Delete some of a store's logs. The caller holds its lock."""
    if not store.is_usable:
        # Its files stay as they are; nothing of them is served.
        for log in logs:
            store.forget_log(log)
        return
    # A block with some of their records may be on its way: it must be published before they are void.
    try:
        await store.writer.flush(sync=False)
        for log in logs:
            store.files.truncate_tables(log.key, 0)
            log.emptied(0)
            store.writer.add_note(log, RunKind.DELETE, -1, 0)
        await store.writer.flush(sync=False)
    except StorageError:
        for log in logs:
            log.reopen()
        raise
    for log in logs:
        store.forget_log(log)
