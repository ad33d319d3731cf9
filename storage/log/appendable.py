"""Appending to a log: a leader's one batch, a follower's many.

Nothing is changed before everything has been checked, and nothing waits: an append either raises or is in the memstore.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.kproto.records import BatchHeader, parse_batch_header, patch_base_offset_and_epoch, patch_log_append_time
from ottla.storage.config import INT64_MAX, LogConfig, TimestampType
from ottla.storage.errors import ChecksOutdatedError, CorruptBatchError, LogClosedError, UnexpectedAppendOffsetError
from ottla.storage.format.block import log_key
from ottla.storage.log.append_checks import (
    check_and_recompress,
    check_follower_batch,
    check_leader_batch,
    checks_records,
)
from ottla.storage.log.append_types import AppendInfo, AppendOrigin, CheckedBatch
from ottla.storage.log.log_state import LogState, marker_of
from ottla.storage.state.producer_state import (
    AppendPlan,
    DuplicateBatch,
    ProducerStateManager,
    VerificationGuard,
)

if TYPE_CHECKING:
    from ottla.storage.memory.iobuf import Fragment
    from ottla.storage.store.memstore import RunGroup
    from ottla.storage.store.message_store import MessageStore

__all__ = ["AppendableLog"]

# Members of enumerations cost as much to look up as a call, and these are asked for with every append.
_CLIENT: Final = AppendOrigin.CLIENT
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
# What the class itself does in Python.
_new_tuple: Final = tuple.__new__


class AppendableLog(LogState, ABC):
    """A log that accepts batches, and hands them to its store."""

    __slots__ = (
        "_counts_unsynced",
        "_unsynced_bytes",
        "_unsynced_epoch",
        "_unsynced_records",
        "checks_records",
        "config",
        "is_closed",
        "key",
        "partition",
        "store",
        "topic",
        "topic_id",
    )

    def __init__(self, store: MessageStore, topic_id: UUID, topic: str, partition: int, config: LogConfig) -> None:
        super().__init__()
        self.store = store
        self.topic_id = topic_id
        self.topic = topic
        self.partition = partition
        self.key = log_key(topic_id.bytes, partition)
        self.is_closed = False
        self.set_config(config)
        self._unsynced_records = 0
        self._unsynced_bytes = 0
        self._unsynced_epoch = -1

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset})>"

    def set_config(self, config: LogConfig) -> None:
        """Take a topic's changed settings."""
        self.config = config
        self.checks_records = checks_records(config)
        self._counts_unsynced = min(config.flush_messages, config.flush_bytes) < INT64_MAX

    def named(self, topic: str) -> None:
        """Set the topic's name, if only its id was known."""
        self.topic = topic

    @abstractmethod
    def on_flushed(self, group: RunGroup) -> None:
        """A block with this part is written: readers may see it."""

    @abstractmethod
    def forget_tail(self, group: RunGroup) -> None:
        """The oldest part of the tail leaves memory."""

    @abstractmethod
    def close(self) -> None:
        """Everyone who still has the log gets LogClosedError from now on."""

    # What it may do.

    @property
    def has_room(self) -> bool:
        """False while both memstores of the store are full."""
        return self.store.writer.has_room

    @property
    def is_stalled(self) -> bool:
        """Whether what it was given cannot be written for now, because the disk is full."""
        return self.store.writer.is_stalled

    @property
    def may_lack_records(self) -> bool:
        """Whether part of its store was missing or damaged when the store was opened."""
        return self.store.has_lost

    async def wait_for_room(self) -> None:
        """Wait until the store accepts appends; raises StoreOfflineError or LogClosedError if it never will."""
        await self.store.writer.wait_for_room()

    def check_open(self) -> None:
        """Before a change: raise LogClosedError or StoreOfflineError if nothing can be done with this log any more."""
        if self.is_closed:
            raise LogClosedError(f"{self.topic}-{self.partition} was closed or deleted")
        store = self.store
        store.writer.check()
        if store.checkpoint is not None:
            store.checkpoint.capture(self)

    async def check_ahead(self, records: memoryview, *, now_ms: int) -> CheckedBatch:
        """Look at the records of a client's batch in a worker thread, before it is appended, and change its codec.

        For checks that an append does not do at once (ChecksTakeLongError). Raises what an append raises. The caller
        limits how many run at the same time: each may take as much memory as the records inflate to.
        """
        return await self.store.context.offload(check_and_recompress, records, self.config, now_ms)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """See `ProducerStateManager.begin_verification`."""
        return self.track_producers().begin_verification(
            producer_id, producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    # Appending.

    def append_as_leader(
        self,
        records: memoryview,
        fragment: Fragment | None,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        now_ms: int,
        transaction_version: int = 0,
        require_verification: bool = False,
        guard: VerificationGuard | None = None,
        checked: CheckedBatch | None = None,
    ) -> AppendInfo:
        """Append one batch: check it, assign its offsets in place, hand the view to the active memstore.

        `fragment` is retained as long as the bytes are needed; without one the caller must not reuse the memory. Raises
        an append error of `ottla.storage.errors`, and then nothing has changed. The acknowledgement waits for
        `flushed_end_offset` > `last_offset`. `checked` is what `check_ahead` returned for the same records, or a part
        of it (`CheckedBatch.is_partial`); the three arguments before it are those of `ProducerStateManager.check`.
        """
        store = self.store
        if self.is_closed or store.writer.refuses or store.checkpoint is not None:
            self.check_open()
            store.writer.check_room()
        from_client = origin is _CLIENT
        config = self.config
        if checked is not None and checked.config is config:
            header, changed = checked.header, checked.changed
        elif checked is not None and checked.is_partial:
            raise ChecksOutdatedError(f"the settings of {self.topic} have changed since the batch was checked")
        else:
            header, changed = check_leader_batch(
                records, config, now_ms, from_client=from_client, checks_all=self.checks_records
            )
        if changed is not None:
            records, fragment = changed, None
        plan: AppendPlan | None = None
        if header.producer_id >= 0:
            producers = self.producers if self.producers is not None else ProducerStateManager()
            decision = producers.check(
                header,
                marker_of(records, header),
                from_client=from_client,
                transaction_version=transaction_version,
                require_verification=require_verification,
                guard=guard,
            )
            if isinstance(decision, DuplicateBatch):
                return self._duplicate(decision)
            plan = decision
        stamped = config.message_timestamp_type is _LOG_APPEND_TIME
        if records.readonly:
            records, fragment = memoryview(bytearray(records)), None
        if stamped:
            patch_log_append_time(records, 0, now_ms)
            header = parse_batch_header(records)
        base_offset = self.log_end_offset
        patch_base_offset_and_epoch(records, 0, base_offset, leader_epoch)
        if plan is not None:
            self.apply_plan(plan, base_offset, now_ms if stamped else None)
        last_offset = self._take(header, records, fragment, base_offset, leader_epoch)
        info: AppendInfo = _new_tuple(
            AppendInfo, (base_offset, last_offset, now_ms if stamped else -1, self.log_start_offset, False)
        )
        return info

    def append_as_follower(self, records: memoryview, fragment: Fragment | None, *, now_ms: int) -> AppendInfo:
        """Append whole batches with the leader's offsets; a last batch that is cut off is left out.

        Offsets may have gaps (compaction) but never go back: UnexpectedAppendOffsetError. CorruptBatchError if a batch
        is unsound. In both cases nothing was appended.
        """
        self.check_open()
        self.store.writer.check_room()
        batches: list[tuple[int, BatchHeader]] = []
        pos, expected = 0, self.log_end_offset
        while _is_whole(records, pos):
            header = check_follower_batch(records, pos)
            if header.base_offset < expected:
                raise UnexpectedAppendOffsetError(header.base_offset, expected)
            expected = header.next_offset
            batches.append((pos, header))
            pos += header.size_bytes
        if not batches:
            raise CorruptBatchError("a follower's append without a whole batch")
        for pos, header in batches:
            view = records[pos : pos + header.size_bytes]
            self.replay(view, header)
            has_gap = header.base_offset > self.log_end_offset
            self._take(header, view, fragment, header.base_offset, header.leader_epoch)
            if has_gap:
                self.store.writer.note_gap(self)
        return AppendInfo(batches[0][1].base_offset, self.log_end_offset - 1, -1, self.log_start_offset)

    def _take(
        self,
        header: BatchHeader,
        view: memoryview,
        fragment: Fragment | None,
        base_offset: int,
        leader_epoch: int,
    ) -> int:
        """Hand a batch, which already contains its offset and epoch, to the store; returns its last offset."""
        last_offset = base_offset + header.last_offset_delta
        self.store.writer.add_batch(
            self, header, view, fragment, base_offset, last_offset, leader_epoch, self._counts_unsynced
        )
        self.grown(base_offset, last_offset, leader_epoch, len(view))
        return last_offset

    def _duplicate(self, duplicate: DuplicateBatch) -> AppendInfo:
        return AppendInfo(
            duplicate.base_offset,
            duplicate.last_offset,
            duplicate.timestamp_ms,
            self.log_start_offset,
            duplicate=True,
        )

    def wants_sync(self, records: int, size_bytes: int, sync_epoch: int) -> bool:
        """Count what is appended against the un-flushed limits; True if this must be synced before it counts."""
        config = self.config
        if self._unsynced_epoch != sync_epoch:
            self._unsynced_epoch = sync_epoch
            self._unsynced_records = self._unsynced_bytes = 0
        self._unsynced_records += records
        self._unsynced_bytes += size_bytes
        return self._unsynced_records >= config.flush_messages or self._unsynced_bytes >= config.flush_bytes


def _is_whole(records: memoryview, pos: int) -> bool:
    left = len(records) - pos
    return left > 12 and left >= int.from_bytes(records[pos + 8 : pos + 12], "big", signed=True) + 12
