"""A store: one or more topics' partitions in shared files, with a life that `LogManager` moves on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import trio

from ottla.storage.config import StoreLayout
from ottla.storage.store.block_writer import BlockWriter
from ottla.storage.store.checkpoint import CheckpointBuilder
from ottla.storage.store.context import StorageContext
from ottla.storage.store.doomed_files import DoomedFiles
from ottla.storage.store.file_store import FileStore
from ottla.storage.store.flush_timer import FlushTimer
from ottla.storage.store.gate import Gate
from ottla.storage.store.memstore import Memstore, StoreLog
from ottla.storage.store.segment import Segment
from ottla.storage.store.segment_files import LOSS_FILE

__all__ = ["MessageStore"]

logger = logging.getLogger(__name__)

# It is asked for with every block, and a member of an enumeration costs as much to look up as a call.
_SHARED: Final = StoreLayout.SHARED


class MaintenanceRequests(Protocol):
    """Where stores ask for what they cannot do while they are written to."""

    def request(self, store: MessageStore) -> None:
        """Look after a store soon."""


class MessageStore:
    """The memstores and files which the logs in `logs` share. Others read its fields; only its methods change them.

    Who owns what: the store owns its logs, its files (`files`, and `doomed`, which were replaced), its write loop
    (`writer`), its timer and its blocks in the tail cache, and `close` ends all of them. `gate` is its life (see
    `ottla.storage.store.gate`).

    A wait for `lock` inside the gate must be cancellable, because the task that closes the store may hold it.

    `snapshots` holds the last checkpointed state of each partition by log key, also of those whose log is not open;
    `dirty` the logs that have changed since. `lock` is held to seal, truncate, delete or take a checkpoint,
    so that each of these sees the others whole. The cleaner rewrites sealed segments without it: their exchange is one
    step. Recovery begins in the segment at `recovery_position`: only those before it may be removed or rewritten.
    `uncleanable` are logs with damage.
    """

    __slots__ = (
        "_checkpointed_bytes",
        "_describe",
        "_ended",
        "_flush_timer",
        "_is_doubted",
        "_limits",
        "_limits_of",
        "_maintenance",
        "_reclaimed",
        "_released",
        "_written_bytes",
        "checkpoint",
        "context",
        "described",
        "dirty",
        "doomed",
        "files",
        "has_lost",
        "lock",
        "logs",
        "recovery_position",
        "snapshots",
        "uncleanable",
        "writer",
    )

    def __init__(self, context: StorageContext, directory: str, maintenance: MaintenanceRequests) -> None:
        self.context = context
        self.files = FileStore(context.disk, directory)
        self.doomed = DoomedFiles(context, self.files.gate)
        self.writer = BlockWriter(context, self.files, self)
        self.logs: dict[bytes, StoreLog] = {}
        #: Something of its files was missing or damaged when it was opened: any of its logs may lack records.
        self.has_lost = False
        self._is_doubted = False
        self.dirty: dict[StoreLog, None] = {}
        self.snapshots: dict[bytes, bytes] = {}
        self.recovery_position = 0
        self.uncleanable: dict[StoreLog, None] = {}
        self.lock = trio.Lock()
        self.checkpoint: CheckpointBuilder | None = None
        self._maintenance = maintenance
        self._describe: Callable[[], bytes] | None = None
        # Nothing more belongs in this segment, if it is still written to.
        self._ended: Segment | None = None
        #: What the file that describes the topic says; None while that is not known.
        self.described: bytes | None = None
        self._flush_timer = FlushTimer(context, self.writer)
        self._written_bytes = 0
        self._checkpointed_bytes = 0
        # The limits of a segment, and the settings that they follow from.
        self._limits = (0, 0)
        self._limits_of: tuple[object, object] = (None, None)
        # What has made bytes in sealed segments dead is counted; and what the last look at them had seen.
        self._released = 0
        self._reclaimed = (-1, -1)

    def __repr__(self) -> str:
        return f"<MessageStore {self.files.directory}, {self.gate.life.value}>"

    # Its life.

    @property
    def gate(self) -> Gate:
        return self.files.gate

    @property
    def error(self) -> Exception | None:
        """Why the store has stopped for good; None while it works."""
        return self.writer.error

    @property
    def is_usable(self) -> bool:
        """Whether it is serving, and has not failed: nothing touches a store that is not."""
        return self.gate.is_open and self.writer.error is None

    def restore(
        self, logs: Mapping[bytes, StoreLog], changed: Iterable[StoreLog], snapshots: dict[bytes, bytes], position: int
    ) -> None:
        """Take over what recovery has found; the store serves from now on."""
        self.logs.update(logs)
        self.dirty.update(dict.fromkeys(changed))
        self.snapshots = snapshots
        self.recovery_position = position
        self.context.space.add(self.writer)
        self.gate.open()

    async def close(self) -> None:
        """End it: nothing is taken any more; who is inside is waited for, and then everything is given back.

        What was appended and is not written yet is dropped: to keep it, flush first. The wait is for
        calls of the disk that have begun; what takes longer is cancelled.
        """
        for log in list(self.logs.values()):
            log.close()
        self._flush_timer.close()
        self.writer.stop()
        if self.checkpoint is not None:
            self.checkpoint.abandon()
        await self.gate.shut()
        await self.doomed.remove()
        # A second call finds all done.
        if self.gate.is_closed:
            return
        self.writer.release()
        self.context.writers.forget(self.files)
        for segment in [*self.files.segments, *self.files.retired]:
            for path in (segment.data_path, segment.index_path):
                self.context.fd_cache.drop(path)
                self.context.damage.forget(path)
        self.gate.closed()
        await self.context.tail.forget(self.files)

    def fail(self, error: Exception) -> None:
        """Stop for good, because background work on the files failed."""
        self.writer.fail(error)

    # Its logs.

    def add_log(self, log: StoreLog) -> None:
        """A partition has a log here from now on."""
        assert log.key not in self.logs
        self.logs[log.key] = log

    def forget_log(self, log: StoreLog) -> None:
        """The partition was deleted: no checkpoint speaks of it any more."""
        self.logs.pop(log.key, None)
        self.dirty.pop(log, None)
        self.snapshots.pop(log.key, None)
        self.uncleanable.pop(log, None)
        if self.checkpoint is not None:
            self.checkpoint.forget(log)
        self.released()

    def describe(self, describe: Callable[[], bytes], *, soon: bool = False) -> None:
        """What the store's topic is, for tools that find the files without the cluster's metadata.

        It is written with the next checkpoint; `soon` asks for one. Before there are records there is no file.
        """
        self._describe = describe
        if soon and self.is_usable and self.files.segments:
            self._maintenance.request(self)

    def new_description(self) -> bytes | None:
        """What the file that describes the topic should say; None if it is known to say so, or nobody has said it."""
        description = self._describe() if self._describe is not None else None
        return None if description == self.described else description

    def description_written(self, content: bytes) -> None:
        """The file says this."""
        self.described = content

    def changed(self, log: StoreLog) -> None:
        """The next checkpoint must take this log's state."""
        self.dirty[log] = None

    def lost_something(self) -> None:
        """Recovery has found that something is missing or damaged."""
        self.has_lost = True

    async def settle_loss(self) -> None:
        """Nobody counts on what was missing when the store was opened: the next start need not know of it.

        What made up for it is synced first. Raises StorageError, or OSError if the disk refuses.
        """
        disk, path = self.context.disk, os.path.join(self.files.directory, LOSS_FILE)

        def remove() -> None:
            if disk.exists(path):
                disk.unlink(path)

        async with self.lock:
            await self.writer.flush(sync=True)
            if self._is_doubted:
                return
            with self.gate:
                await self.context.offload(remove)
        self.has_lost = False
        self.uncleanable.clear()

    async def doubt(self) -> None:
        """Something is damaged that was sound when the store was opened: the next start is to know.

        Raises OSError. Who listens is told in any case.
        """
        self._is_doubted = True
        path = os.path.join(self.files.directory, LOSS_FILE)
        try:
            async with self.lock:
                await self.context.offload(self.context.disk.write_file_atomic, path, b"")
        finally:
            if self.context.listener is not None:
                self.context.listener.on_damaged(list(self.logs.values()))

    def damaged(self, log: StoreLog) -> None:
        """The log cannot be cleaned until a restart."""
        self.uncleanable[log] = None

    # What the cleaner asks and tells.

    def released(self) -> None:
        """Bytes in sealed segments have become dead."""
        self._released += 1

    @property
    def may_reclaim(self) -> bool:
        """Whether something has changed since the last look at what the sealed segments hold that is dead.

        Without any there is nothing to give back: most topics of many have one file, which is written to.
        """
        if not self.files.has_sealed:
            return bool(self.files.retired)
        return bool(self.files.retired) or self._reclaimed != (self.files.layout_version, self._released)

    def reclaimed(self) -> None:
        """What is dead has been looked at."""
        self._reclaimed = (self.files.layout_version, self._released)

    # What its writer tells.

    @property
    def needs_swap(self) -> bool:
        """Whether a checkpoint waits for a memstore to be swapped out."""
        return self.checkpoint is not None and not self.checkpoint.is_armed

    def swapped(self, memstore: Memstore) -> None:
        """All that was appended is in known blocks, of which this memstore becomes the last."""
        if self.checkpoint is not None and not self.checkpoint.is_armed:
            self.checkpoint.arm(self.files.next_sequence - (not memstore.groups))

    def rolled(self) -> None:
        """A new segment was begun, and the one before can be sealed."""
        self._maintenance.request(self)

    def written(self, memstore: Memstore, size_bytes: int) -> None:
        """A block is written and published."""
        self._written_bytes += size_bytes
        if memstore.batch_count and not memstore.wants_sync:
            self._flush_timer.on_written(memstore.groups)
        if self._written_bytes - self._checkpointed_bytes >= self.context.config.checkpoint_bytes:
            self._checkpointed_bytes = self._written_bytes
            self._maintenance.request(self)

    def stalled(self) -> None:
        """The disk is full: a checkpoint would wait for a block, and requests that wait for a write are answered."""
        if self.checkpoint is not None:
            self.checkpoint.abandon()
        if self.context.listener is not None:
            self.context.listener.on_stalled(list(self.logs.values()))

    def failed(self, error: Exception) -> None:
        """A write or a sync has failed: the store has stopped for good. Say so."""
        keys = {"path": self.files.directory, "error": str(error)}
        logger.error("store %s is offline, its disk has failed: %s", self.files.directory, error, extra=keys)
        if self.checkpoint is not None:
            self.checkpoint.abandon()
        if self.context.listener is not None:
            self.context.listener.on_offline(list(self.logs.values()), error)

    # Rolling.

    def end_segment(self, segment: Segment) -> None:
        """Whatever is written from now on belongs in a new segment, as this one should be given back."""
        self._ended = segment

    def takes_at_once(self, size_bytes: int, now_ms: int) -> bool:
        """Whether a block of this size can be written without rolling, and no checkpoint waits for a swap."""
        return not self.must_roll(size_bytes, now_ms) and (self.checkpoint is None or not self.needs_swap)

    def must_roll(self, size_bytes: int, now_ms: int) -> bool:
        """The triggers: bytes, index entries, age, an early end. The settings are those of the logs in the block's
        store.
        """
        segment = self.files.active
        if segment is None:
            return True
        if segment.run_count == 0:
            return False
        segment_bytes, segment_ms = self.roll_limits()
        return (
            segment is self._ended
            or segment.size_bytes + size_bytes > segment_bytes
            or segment.run_count >= self.context.config.segment_index_entries
            or now_ms - segment.created_at_ms >= segment_ms
        )

    def roll_limits(self) -> tuple[int, int]:
        """The largest size and age of a segment: a topic's own settings count where the topic has its own store.

        What is compacted can be after `max.compaction.lag.ms` at the latest (Kafka's `LogConfig.maxSegmentMs`).
        """
        config = self.context.config
        for log in self.logs.values():
            if config.store_layout is _SHARED:
                break
            topic = log.config
            if topic is not self._limits_of[0] or config is not self._limits_of[1]:
                segment_ms = min(topic.segment_ms, topic.max_compaction_lag_ms) if topic.compact else topic.segment_ms
                self._limits = min(config.segment_bytes, topic.segment_bytes), segment_ms
                self._limits_of = topic, config
            return self._limits
        return config.segment_bytes, config.segment_ms

    # Checkpoints.

    def begin_checkpoint(self, *, makes_room: bool = False) -> CheckpointBuilder:
        """Begin to take the states of all changed logs; those that change meanwhile are captured before.

        DiskFullError while the disk is full; for a checkpoint that `makes_room`, while a block waits for room.
        """
        self.writer.check()
        if not makes_room or self.writer.waits_for_room:
            self.writer.check_room()
        assert self.checkpoint is None
        self._checkpointed_bytes = self._written_bytes
        self.checkpoint = CheckpointBuilder(self.dirty)
        self.dirty = {}
        if self.writer.has_work:
            self.writer.start()
        else:
            self.checkpoint.arm(self.files.next_sequence - 1)
        return self.checkpoint

    def end_checkpoint(self, builder: CheckpointBuilder) -> None:
        """No more states are taken; the next checkpoint takes those that were not."""
        assert self.checkpoint is builder
        self.checkpoint = None
        self.dirty.update(builder.left)

    def take_snapshots(self, builder: CheckpointBuilder) -> None:
        """All that the states speak of is written: they are what the next checkpoint file says."""
        self.snapshots.update(builder.taken)

    def drop_snapshots(self, builder: CheckpointBuilder) -> None:
        """The checkpoint was given up: the states that it has taken must be taken again."""
        self.dirty.update((self.logs[key], None) for key in builder.begun if key in self.logs)

    def recover_from(self, position: int) -> None:
        """The checkpoint that moves the recovery point is durable."""
        self.recovery_position = position
