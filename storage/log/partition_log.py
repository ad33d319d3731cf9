"""One partition's view of its store: offsets, epochs, producers, visibility."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.storage.config import INT64_MAX, LogConfig
from ottla.storage.errors import (
    LogClosedError,
    OffsetOutOfRangeError,
)
from ottla.storage.format.block import RunKind, log_key
from ottla.storage.log import append as log_append
from ottla.storage.log import truncation as log_truncation
from ottla.storage.log.append_checks import check_and_recompress, checks_records
from ottla.storage.log.append_types import AppendInfo, AppendOrigin, CheckedBatch, TimestampOffset
from ottla.storage.reading import search as log_search
from ottla.storage.reading.reader import ReadPlan
from ottla.storage.reading.spans import ensure_spans
from ottla.storage.state.aborted_transactions import AbortedTransaction, AbortedTransactions
from ottla.storage.state.leader_epochs import LeaderEpochs
from ottla.storage.state.producer_state import (
    ProducerEntry,
    ProducerStateManager,
    VerificationGuard,
)
from ottla.storage.upkeep.retention import size_of

if TYPE_CHECKING:
    from ottla.storage.reading.file_read import ReadHint
    from ottla.storage.reading.spans import Spans
    from ottla.storage.store.memstore import RunGroup
    from ottla.storage.store.message_store import MessageStore

__all__ = ["AppendInfo", "AppendOrigin", "PartitionLog", "TimestampOffset"]

_last_offset_of = attrgetter("last_offset")


class PartitionLog:
    """The log of one partition. Made by `LogManager.open_log`.

    [`log_start_offset`, `log_end_offset`) is what is there; below `flushed_end_offset` it is written (and synced where
    the flush settings ask) and may be acknowledged and read. `high_watermark` is the server's: it begins at the
    recovered end, and the server sets it with `set_high_watermark` and moves it with `advance_high_watermark`.
    Methods that are not `async` never wait, and a caller sees no half-done change.
    """

    __slots__ = (
        "_unsynced_bytes",
        "_unsynced_epoch",
        "_unsynced_records",
        "aborted",
        "checks_records",
        "config",
        "counts_unsynced",
        "epochs",
        "first_dirty_offset",
        "flushed_end_offset",
        "high_watermark",
        "is_closed",
        "key",
        "last_read",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producers",
        "read_hint",
        "size_bytes",
        "spans",
        "store",
        "tail",
        "topic",
        "topic_id",
    )

    def __init__(self, store: MessageStore, topic_id: UUID, topic: str, partition: int, config: LogConfig) -> None:
        self.store = store
        self.topic_id = topic_id
        self.topic = topic
        self.partition = partition
        self.key = log_key(topic_id.bytes, partition)
        self.set_config(config)
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_end_offset = 0
        self.high_watermark = 0
        self.first_dirty_offset = 0
        self.size_bytes = 0
        self.epochs = LeaderEpochs()
        self.producers: ProducerStateManager | None = None
        self.aborted: AbortedTransactions | None = None
        self.tail: list[RunGroup] = []
        self.spans: Spans | None = None
        #: Where the last read of files ended, and when; and what is known of that place.
        self.last_read: tuple[int, float] = (-1, 0.0)
        self.read_hint: ReadHint | None = None
        self.is_closed = False
        self._unsynced_records = 0
        self._unsynced_bytes = 0
        self._unsynced_epoch = -1

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset})>"

    # Appending.

    @property
    def has_room(self) -> bool:
        """False while both memstores of the store are full."""
        return self.store.has_room

    async def wait_for_room(self) -> None:
        """Wait until the store takes appends; raises StoreOfflineError if it never will."""
        await self.store.wait_for_room()

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """See `ProducerStateManager.begin_verification`."""
        if self.producers is None:
            self.producers = ProducerStateManager()
            self.producers.end_offset = self.log_end_offset
        return self.producers.begin_verification(
            producer_id, producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    append_as_leader = log_append.append_as_leader
    append_as_follower = log_append.append_as_follower

    async def check_ahead(self, records: memoryview, *, origin: AppendOrigin, now_ms: int) -> CheckedBatch:
        """Do what takes long about a batch in a worker thread, before it is appended: its checks, a change of codec.

        Worth the while for a large batch where `checks_records`. Raises as an append does.
        """
        return await self.store.context.offload(
            check_and_recompress, records, self.config, now_ms, from_client=origin is AppendOrigin.CLIENT
        )

    def check_open(self) -> None:
        """Before a change: raise LogClosedError or StoreOfflineError if nothing can be done with this log any more."""
        if self.is_closed:
            raise LogClosedError(f"{self.topic}-{self.partition} was closed or deleted")
        store = self.store
        store.check_online()
        if store.checkpoint is not None:
            store.checkpoint.capture(self)

    def needs_sync(self, records: int, size_bytes: int, sync_epoch: int) -> bool:
        """Count what is appended against the un-flushed limits; True if this must be synced before it counts."""
        config = self.config
        if self._unsynced_epoch != sync_epoch:
            self._unsynced_epoch = sync_epoch
            self._unsynced_records = self._unsynced_bytes = 0
        self._unsynced_records += records
        self._unsynced_bytes += size_bytes
        return self._unsynced_records >= config.flush_messages or self._unsynced_bytes >= config.flush_bytes

    # What the store calls.

    def on_flushed(self, group: RunGroup) -> None:
        """A block with this part is written: readers may have it."""
        if group.last_offsets:
            self.flushed_end_offset = group.last_offsets[-1] + 1
            self.tail.append(group)

    def forget_tail(self, group: RunGroup) -> None:
        """The oldest part of the tail leaves memory."""
        if self.tail and self.tail[0] is group:
            del self.tail[0]

    # Reading.

    def plan_read(self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool) -> ReadPlan:
        """Plan a read of whole batches from the one that contains `offset`, up to `end_offset`.

        Nothing that is not flushed is read. OffsetOutOfRangeError outside [log start, log end]. What is in memory is
        there at once, the rest when `ottla.storage.reading.reader.read` has filled the plan.
        """
        if self.is_closed:
            raise LogClosedError(f"{self.topic}-{self.partition} was closed or deleted")
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
        plan = ReadPlan(self, offset, max_bytes, min(end_offset, self.flushed_end_offset), min_one_batch=min_one_batch)
        tail = self.tail
        if offset >= plan.end_offset:
            plan.complete()
        elif tail and offset >= tail[0].base_offset:
            first = len(tail) - 1
            if offset < tail[first].base_offset:
                first = bisect_left(tail, offset, key=_last_offset_of)
            for index in range(first, len(tail)):
                if not plan.read_group(tail[index]):
                    break
            plan.complete()
        return plan

    def aborted_transactions(self, offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions with records in [offset, end_offset), by first offset."""
        return self.aborted.collect(offset, end_offset) if self.aborted is not None else ()

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The earliest flushed record whose timestamp is at least this; None when there is none."""
        return await log_search.offset_for_timestamp(self, timestamp_ms)

    async def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp (ListOffsets' MAX_TIMESTAMP); None for an empty log."""
        return await log_search.max_timestamp_offset(self)

    # Visibility and epochs.

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed consumer may see: never beyond the high watermark."""
        if self.producers is None or self.producers.first_unstable_offset is None:
            return self.high_watermark
        return min(self.high_watermark, max(self.producers.first_unstable_offset, self.log_start_offset))

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward (never back, never beyond the log end); True if it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.set_high_watermark(offset)
        return True

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, also back: for a change of role."""
        self.high_watermark = offset
        if self.producers is not None:
            self.producers.advance_high_watermark(offset)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 for none."""
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch not above this one, its end offset); (-1, -1) when unknown (KIP-101, KIP-279)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        if self.producers is not None and self.producers.expire(
            now_ms, self.store.context.config.producer_id_expiration_ms
        ):
            self.store.dirty[self] = None

    def active_producers(self) -> Sequence[ProducerEntry]:
        """The producers that DescribeProducers names."""
        return list(self.producers.active_producers()) if self.producers is not None else []

    # Changing what is there.

    async def truncate_to(self, offset: int) -> None:
        """Drop everything at and beyond offset; returns when that is written. No append may run meanwhile."""
        await log_truncation.truncate_to(self, offset)

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and start anew at offset (a follower below its leader's log start)."""
        await log_truncation.truncate_fully_and_start_at(self, offset)

    async def advance_log_start_offset(self, offset: int) -> None:
        """Make everything below offset unreadable (DeleteRecords, retention); returns when that is written."""
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.high_watermark)
        await ensure_spans([self])
        self.check_open()
        if offset > self.log_start_offset:
            before = size_of(self)
            self.move_log_start(offset)
            self.size_bytes -= before - size_of(self)
            self.store.add_note(self, RunKind.LOG_START, self.latest_epoch, offset)
            await self.store.flush(sync=False)

    def move_log_start(self, offset: int) -> None:
        """Forget what lies below a new log start offset."""
        self.log_start_offset = offset
        self.store.released += 1
        self.epochs.truncate_from_start(offset)
        if self.producers is not None:
            self.producers.advance_log_start_offset(offset)
        if self.aborted is not None:
            self.aborted.truncate_from_start(offset)

    def forget_from(self, offset: int) -> None:
        """Forget what lies at and beyond an offset; producers excepted, which must be rebuilt."""
        self.log_end_offset = min(self.log_end_offset, offset)
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self.epochs.truncate_from_end(offset)
        if self.aborted is not None:
            self.aborted.truncate_from_end(offset)
        if self.spans is not None:
            self.spans.truncate(offset)
        self._forget_places()
        while self.tail and self.tail[-1].last_offset >= offset:
            group = self.tail[-1]
            group.truncate(offset)
            if group.last_offsets:
                break
            self.tail.pop()

    def _forget_places(self) -> None:
        """What is known of where the next read begins is not true any more."""
        self.read_hint = None
        self.store.context.read_ahead.forget(self)
        self.store.context.prefetch.forget(self)

    def start_at(self, offset: int) -> None:
        """Forget everything; the log is empty and goes on at an offset."""
        self.log_start_offset = self.log_end_offset = self.flushed_end_offset = self.high_watermark = offset
        self.first_dirty_offset = offset
        self.size_bytes = 0
        self.epochs.clear()
        self.producers = None
        self.aborted = None
        self.spans = None
        self._forget_places()
        self.tail.clear()

    def set_config(self, config: LogConfig) -> None:
        """Take a topic's changed settings."""
        self.config = config
        self.checks_records = checks_records(config)
        self.counts_unsynced = min(config.flush_messages, config.flush_bytes) < INT64_MAX

    async def flush(self) -> None:
        """Write and sync everything appended up to now."""
        self.check_open()
        await self.store.flush(sync=True)
