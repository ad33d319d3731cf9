"""A store: one or more topics' partitions in shared files, two memstores in turn, one write loop.

The contract of durability is stated here, once: `PartitionLog.flushed_end_offset` moves when a block has been written
to the file, and synced where the topic's flush settings ask for it; nobody is acknowledged on anything else. A failed
write or sync stops the store for good (`StoreOfflineError`): nothing is retried, because after a failed sync the kernel
may have dropped the pages, and nothing that was waiting is ever acknowledged. What was acknowledged stays readable.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING

import trio

from ottla.kproto.records import LENGTH_PREFIX_BYTES
from ottla.storage.config import StoreLayout
from ottla.storage.errors import StoreOfflineError
from ottla.storage.store.append_crowd import AppendCrowd
from ottla.storage.store.file_store import FileStore
from ottla.storage.store.flush_timer import FlushTimer
from ottla.storage.store.memstore import Memstore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.records.header import BatchHeader
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.memory.iobuf import Fragment
    from ottla.storage.store.checkpoint import CheckpointBuilder
    from ottla.storage.store.context import StorageContext
    from ottla.storage.store.memstore import RunGroup
    from ottla.storage.store.segment import Segment

__all__ = ["MessageStore"]

logger = logging.getLogger(__name__)

_PUBLISH_SLICE = 128
"""After so many partitions of a block the event loop gets a turn."""

_MAX_IN_PLACE_BYTES = 64 * 1024
_MAX_IN_PLACE_GROUPS = 16
"""What is written in an append's own turn: so little that it holds up nobody."""


class MessageStore:
    """The memstores and files which the logs in `logs` share.

    `snapshots` holds the last checkpointed state of each partition by log key, also of those whose log is not open;
    `dirty` the logs that have changed since. `lock` is held by whoever seals, rewrites, truncates or checkpoints.
    Recovery begins in the segment at `recovery_position`: only those before it may be removed or written anew.
    `released` counts what has made bytes in sealed segments dead; `uncleanable` are logs with damage.
    The write loop runs only while there is something to write: an idle store has no task.
    """

    __slots__ = (
        "_crowd",
        "_flush_timer",
        "_is_held",
        "_loop_is_running",
        "active",
        "checkpoint",
        "checkpointed_bytes",
        "context",
        "dirty",
        "error",
        "files",
        "lock",
        "logs",
        "recovery_position",
        "released",
        "room",
        "snapshots",
        "sync_epoch",
        "uncleanable",
        "written_bytes",
    )

    def __init__(self, context: StorageContext, directory: str) -> None:
        self.context = context
        self.files = FileStore(context, directory)
        self.logs: dict[bytes, PartitionLog] = {}
        self.dirty: dict[PartitionLog, None] = {}
        self.snapshots: dict[bytes, bytes] = {}
        self.active = Memstore()
        self.error: Exception | None = None
        self.released = 0
        self.recovery_position = 0
        self.uncleanable: set[PartitionLog] = set()
        self.sync_epoch = 0
        self.room = trio.lowlevel.ParkingLot()
        self.lock = trio.Lock()
        self.checkpoint: CheckpointBuilder | None = None
        self.written_bytes = 0
        self.checkpointed_bytes = 0
        self._loop_is_running = False
        self._is_held = False
        self._crowd = AppendCrowd()
        self._flush_timer = FlushTimer(context, self._sync_soon)

    # What the logs call.

    @property
    def has_room(self) -> bool:
        """Whether the active memstore takes more."""
        config = self.context.config
        memstore = self.active
        return (
            memstore.size_bytes < config.memstore_bytes
            and memstore.batch_count < config.memstore_batches
            and memstore.record_count < config.memstore_records
        )

    async def wait_for_room(self) -> None:
        """Wait until the active memstore takes more; StoreOfflineError if the store has stopped."""
        while not self.has_room:
            self.check_online()
            await self.room.park()
        self.check_online()

    def check_online(self) -> None:
        """Raise StoreOfflineError if the store has stopped."""
        if self.error is not None:
            raise StoreOfflineError(f"the store {self.files.directory} is offline: {self.error}") from self.error

    def add_batch(
        self,
        log: PartitionLog,
        header: BatchHeader,
        view: memoryview,
        fragment: Fragment | None,
        base_offset: int,
        leader_epoch: int,
    ) -> None:
        """Take a batch whose offsets were assigned; it will be in the next block."""
        memstore = self.active
        group = memstore.groups.get(log)
        if group is None:
            group = memstore.group(log, self.context.config.run_bytes)
            self.dirty[log] = None
        group.add(header, view, fragment, base_offset, leader_epoch)
        size_bytes = header.batch_length + LENGTH_PREFIX_BYTES
        memstore.size_bytes += size_bytes
        memstore.batch_count += 1
        records = header.last_offset_delta + 1
        memstore.record_count += records
        if log.counts_unsynced and log.needs_sync(records, size_bytes, self.sync_epoch):
            memstore.wants_sync = True
        if not self._loop_is_running and not self._is_held:
            self._start_loop()

    def hold(self) -> None:
        """Leave the next batches to `write_gathered`, which the caller promises to call before it waits."""
        assert not self._is_held
        self._is_held = True

    def write_gathered(self, *, more_expected: bool = False) -> None:
        """Begin to write what came since `hold`.

        Where few append, a small block is written here and now: that takes less time than waking the write loop, which
        stays for what is large, must be synced or has to wait, and for crowds, whose appends share a block.
        """
        self._is_held = False
        memstore = self.active
        if not memstore.groups or self.error is not None:
            return
        self._crowd.join()
        if self._loop_is_running:
            return
        size_bytes = memstore.block_bytes()
        now_ms = self.context.clock.time_ms()
        if more_expected or self._crowd.is_there or not self._can_write_in_place(size_bytes, now_ms):
            self._start_loop()
            return
        self._crowd.written_alone()
        self.context.use_writer(self)
        self._swap()
        try:
            self._write_in_place(memstore, size_bytes, now_ms)
            self._publish_part(list(memstore.groups.values()), self.files.active)
            self._keep(memstore)
        except OSError as error:
            self._go_offline(error, memstore)
            return
        except Exception as error:
            # A fault of the program: what was swapped out is nowhere now, so nothing may follow it.
            self._go_offline(error, memstore)
            raise
        self._schedule_checkpoint()

    def _can_write_in_place(self, size_bytes: int, now_ms: int) -> bool:
        memstore = self.active
        return (
            size_bytes <= _MAX_IN_PLACE_BYTES
            and len(memstore.groups) <= _MAX_IN_PLACE_GROUPS
            and not memstore.wants_sync
            and not self._must_arm
            and not self._must_roll(size_bytes, now_ms)
        )

    def add_note(
        self, log: PartitionLog, kind: int, leader_epoch: int, base_offset: int, last_offset: int = -1
    ) -> None:
        """Take a run without bytes."""
        self.active.group(log, self.context.config.run_bytes).note(kind, leader_epoch, base_offset, last_offset)
        self.dirty[log] = None
        if not self._loop_is_running:
            self._start_loop()

    async def flush(self, *, sync: bool) -> None:
        """Wait until everything taken up to now is written, and synced if asked; StoreOfflineError if it cannot be."""
        self.check_online()
        memstore = self.active
        if sync:
            memstore.wants_sync = True
        if memstore.done is None:
            memstore.done = trio.Event()
        if not self._loop_is_running:
            self._start_loop()
        await memstore.done.wait()
        self.check_online()

    @property
    def is_writing(self) -> bool:
        """Whether the write loop runs."""
        return self._loop_is_running

    # The write loop.

    def _start_loop(self) -> None:
        self._loop_is_running = True
        self.context.spawn(self._write_loop)

    async def _write_loop(self) -> None:
        """Write block after block until nothing is left; what arrives meanwhile gathers in the other memstore."""
        with trio.CancelScope(shield=True):
            try:
                while self.error is None and (self.active.has_work or self._must_arm):
                    memstore = self._swap()
                    self._crowd.swapped()
                    try:
                        await self._write(memstore)
                    except OSError as error:
                        self._go_offline(error, memstore)
                        return
                    if self.error is not None:
                        _wake(memstore)
                        return
                    await self._publish(memstore)
                    self._schedule_checkpoint()
                    # A block that was written in place has let nobody else run, and so nothing gather.
                    await trio.lowlevel.checkpoint()
                    while self.context.tail.evict():
                        await trio.lowlevel.checkpoint()
            finally:
                self._loop_is_running = False

    def _swap(self) -> Memstore:
        memstore = self.active
        self.active = Memstore()
        if memstore.wants_sync:
            self.sync_epoch += 1
        if self.checkpoint is not None and not self.checkpoint.armed.is_set():
            self.checkpoint.arm(self.files.next_sequence - (not memstore.groups))
        if self.room:
            self.room.unpark_all()
        return memstore

    async def _write(self, memstore: Memstore) -> None:
        self.context.use_writer(self)
        if memstore.groups:
            size_bytes = memstore.block_bytes()
            now_ms = self.context.clock.time_ms()
            if self._must_roll(size_bytes, now_ms):
                await self.roll()
            if memstore.wants_sync or size_bytes > self.context.config.inline_write_bytes:
                started = perf_counter()
                await self.context.offload(self._write_block, memstore, size_bytes, now_ms)
                self._count_written(memstore, size_bytes, perf_counter() - started)
            else:
                self._write_in_place(memstore, size_bytes, now_ms)
        elif memstore.wants_sync and self.files.unsynced_bytes:
            await self.context.offload(self.files.sync)

    def _write_in_place(self, memstore: Memstore, size_bytes: int, now_ms: int) -> None:
        started = perf_counter()
        self._write_block(memstore, size_bytes, now_ms)
        self._count_written(memstore, size_bytes, perf_counter() - started)

    def _count_written(self, memstore: Memstore, size_bytes: int, seconds: float) -> None:
        context = self.context
        context.block_writes.observe(seconds)
        context.written_bytes += size_bytes
        self.files.advance(size_bytes, len(memstore.runs), synced=memstore.wants_sync)
        self.files.segments[-1].pending_index += b"".join(memstore.runs)
        memstore.runs = []
        self.written_bytes += size_bytes

    def _write_block(self, memstore: Memstore, size_bytes: int, now_ms: int) -> None:
        """Build the block, write it, and sync it if that is asked. May run in a worker thread."""
        files = self.files
        files.write(memstore.seal(files.segments[-1].size_bytes, files.next_sequence, now_ms, size_bytes))
        if memstore.wants_sync:
            files.sync()

    async def _publish(self, memstore: Memstore) -> None:
        """Let readers see the block, tell the listener, and keep the block for the readers of the tail."""
        segment = self.files.active
        groups = list(memstore.groups.values())
        for first in range(0, len(groups), _PUBLISH_SLICE):
            if first:
                await trio.lowlevel.checkpoint()
            self._publish_part(groups[first : first + _PUBLISH_SLICE], segment)
        self._keep(memstore)

    def _publish_part(self, groups: Sequence[RunGroup], segment: Segment | None) -> None:
        assert segment is not None
        for group in groups:
            group.enter(segment.table(group.log.key))
            group.log.on_flushed(group)
        listener = self.context.listener
        if listener is not None:
            listener.on_flushed([group.log for group in groups])

    def _keep(self, memstore: Memstore) -> None:
        if memstore.batch_count:
            self.context.tail.add(memstore)
            if not memstore.wants_sync:
                self._flush_timer.on_written(memstore.groups)
        _wake(memstore)

    def _go_offline(self, error: Exception, memstore: Memstore) -> None:
        """Stop for good: keep what was not written, acknowledge nothing, say so."""
        self.error = error
        keys = {"path": self.files.directory, "error": str(error)}
        logger.error("store %s is offline, its last write failed: %s", self.files.directory, error, extra=keys)
        self.room.unpark_all()
        _wake(memstore)
        _wake(self.active)
        if self.checkpoint is not None:
            self.checkpoint.abandon()
        if self.context.listener is not None:
            self.context.listener.on_offline(list(self.logs.values()), error)

    def fail(self, error: OSError) -> None:
        """Stop because background work on the files failed."""
        if self.error is None:
            self._go_offline(error, self.active)

    # Rolling, syncing by time, checkpoints.

    def _must_roll(self, size_bytes: int, now_ms: int) -> bool:
        """The three triggers: bytes, index entries, age. The settings are those of the logs in the block's store."""
        segment = self.files.active
        if segment is None:
            return True
        if segment.run_count == 0:
            return False
        segment_bytes, segment_ms = self.roll_limits()
        return (
            segment.size_bytes + size_bytes > segment_bytes
            or segment.run_count >= self.context.config.segment_index_entries
            or now_ms - segment.created_at_ms >= segment_ms
        )

    def roll_limits(self) -> tuple[int, int]:
        """The largest size and age of a segment: a topic's own settings count where the topic has its own store."""
        config = self.context.config
        log = next(iter(self.logs.values()), None)
        if log is None or config.store_layout is StoreLayout.SHARED:
            return config.segment_bytes, config.segment_ms
        return min(config.segment_bytes, log.config.segment_bytes), log.config.segment_ms

    async def roll(self) -> None:
        """Begin a new segment; the one before is sealed in the background."""
        sealing = self.files.active
        await self.context.offload(self.files.create_segment, self.context.clock.time_ms())
        if sealing is not None:
            self.context.maintenance.request(self)

    def _sync_soon(self) -> None:
        if self.error is None:
            self.active.wants_sync = True
            if not self._loop_is_running:
                self._start_loop()

    def _schedule_checkpoint(self) -> None:
        if self.written_bytes - self.checkpointed_bytes >= self.context.config.checkpoint_bytes:
            self.checkpointed_bytes = self.written_bytes
            self.context.maintenance.request(self)

    @property
    def _must_arm(self) -> bool:
        return self.checkpoint is not None and not self.checkpoint.armed.is_set()

    def end_checkpoint(self, builder: CheckpointBuilder) -> None:
        """All states are taken; those that were not are dirty again."""
        self.checkpoint = None
        self.dirty.update(builder.left)

    def begin_checkpoint(self, builder: CheckpointBuilder) -> None:
        """Let the write loop arm the checkpoint at its next swap, and logs be captured before they change."""
        self.check_online()
        self.checkpoint = builder
        if not self._loop_is_running:
            self._start_loop()


def _wake(memstore: Memstore) -> None:
    """Let go who waits for a memstore; they look whether the store is still online."""
    if memstore.done is not None:
        memstore.done.set()
