"""One partition's view of its store: offsets, epochs, producers, visibility."""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from ottla.runtime.stages import Stages
from ottla.storage.config import INT64_MAX, LogConfig
from ottla.storage.errors import (
    CorruptLogError,
    DiskFullError,
    LogClosedError,
    OffsetOutOfRangeError,
    StorageError,
    StoreOfflineError,
)
from ottla.storage.format.block import RunKind
from ottla.storage.log.append_types import AppendInfo, AppendOrigin
from ottla.storage.log.appendable import AppendableLog
from ottla.storage.log.producer_rebuild import read_producers
from ottla.storage.memory.iobuf import IOBuf
from ottla.storage.reading.locate import wait_for_spans
from ottla.storage.reading.parts import size_of
from ottla.storage.reading.places import Places
from ottla.storage.reading.plan import ReadPlan
from ottla.storage.reading.prefetch import Prefetch
from ottla.storage.reading.reader import Reader
from ottla.storage.reading.search import TimestampOffset, max_timestamp_offset, offset_for_timestamp
from ottla.storage.state.aborted_transactions import AbortedTransaction
from ottla.storage.state.producer_state import ProducerEntry
from ottla.storage.store.message_store import MessageStore

if TYPE_CHECKING:
    from ottla.storage.store.memstore import RunGroup

__all__ = ["AppendInfo", "AppendOrigin", "PartitionLog", "TimestampOffset", "logs_of"]

_last_offset_of = attrgetter("last_offset")
_MAX_FORGOTTEN: Final = 64


class PartitionLog(AppendableLog):
    """The log of one partition, which `LogManager` makes, and closes when the partition is deleted or the node stops.

    Methods that are not `async` never wait, and a caller sees no half-done change.
    """

    __slots__ = ("_forgotten", "_reader", "_tail", "places")

    def __init__(
        self, store: MessageStore, reader: Reader, topic_id: UUID, topic: str, partition: int, config: LogConfig
    ) -> None:
        super().__init__(store, topic_id, topic, partition, config)
        self._reader = reader
        # The parts of blocks in memory, in the order of offsets, without a gap up to the flushed end.
        self._tail: list[RunGroup] = []
        # So many at the front of it are no longer in memory.
        self._forgotten = 0
        self.places = Places(self.key, store.files)

    @property
    def prefetch(self) -> Prefetch:
        """The readers that continue where a read has ended."""
        return self._reader.prefetch

    # What the store calls.

    def on_flushed(self, group: RunGroup) -> None:
        """A block with this part is written: readers may see it."""
        if group.last_offsets:
            self.flushed_to(group.last_offsets[-1] + 1, group.size_bytes)
            self._tail.append(group)

    def forget_tail(self, group: RunGroup) -> None:
        """The oldest part of the tail leaves memory."""
        tail, oldest = self._tail, self._forgotten
        if oldest < len(tail) and tail[oldest] is group:
            self._forgotten = oldest = oldest + 1
            # Several in one go, for all that are left move up: of a quiet log they may be tens of thousands.
            if oldest >= _MAX_FORGOTTEN or 2 * oldest >= len(tail):
                self._drop_forgotten()

    def _drop_forgotten(self) -> None:
        del self._tail[: self._forgotten]
        self._forgotten = 0

    def close(self) -> None:
        """Everyone who still uses the log gets LogClosedError from now on; what is kept for its readers is released."""
        self.is_closed = True
        self._reader.forget(self)

    def reopen(self) -> None:
        """It was closed to be deleted, but could not be: it is used again if anybody opens it."""
        self.is_closed = False

    # Reading.

    def plan_read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, names_files: bool = False
    ) -> ReadPlan:
        """Plan a read of whole batches from the one that contains `offset`, up to `end_offset`.

        Nothing that is not flushed is read. OffsetOutOfRangeError outside [log start, log end]. What is in memory is
        there at once, the rest when `ottla.storage.reading.read` has filled the plan. With `names_files` some of it may
        be ranges of files.
        """
        if self.is_closed:
            raise LogClosedError(f"{self.topic}-{self.partition} was closed or deleted")
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
        plan = ReadPlan(
            self,
            offset,
            max_bytes,
            min(end_offset, self.flushed_end_offset),
            min_one_batch=min_one_batch,
            names_files=names_files,
        )
        tail, oldest = self._tail, self._forgotten
        if offset >= plan.end_offset:
            plan.complete()
        elif oldest < len(tail) and offset >= tail[oldest].base_offset:
            first = len(tail) - 1
            if offset < tail[first].base_offset:
                first = bisect_left(tail, offset, oldest, key=_last_offset_of)
            elif offset > tail[first].last_offsets[-1]:
                # The log was truncated within a gap: after its last batch there are offsets that no record has.
                first += 1
            plan.read_tail(tail, first)
        return plan

    def begin_read(self, plans: Sequence[ReadPlan]) -> Stages[None]:
        """Fill the `records` of every plan, of this log and of others."""
        return self._reader.read(plans)

    async def read_batches(self, offset: int, end_offset: int) -> tuple[IOBuf, int]:
        """Read on from an offset, up to about 1 MiB: (whole batches, the offset that follows them).

        For code that walks through a log; the first batch is returned whatever its size. CorruptLogError where the log
        is damaged, LogClosedError if it was deleted.
        """
        return await self._reader.read_batches(self, offset, end_offset)

    async def find_unreadable(self) -> int:
        """The first offset that cannot be read because files or the disk are damaged, or the end of what is written.

        Reads all up to there. LogClosedError if the log was deleted, OSError if the files cannot be opened.
        """
        offset = self.log_start_offset
        # Retention may move the start meanwhile.
        while (offset := max(offset, self.log_start_offset)) < self.flushed_end_offset:
            try:
                records, offset = await self.read_batches(offset, self.flushed_end_offset)
            except CorruptLogError:
                break
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                break
            records.release()
        return offset

    def aborted_transactions(self, offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions with records in [offset, end_offset), by first offset.

        Readers of records must ask the records' plan instead: this index may be newer than the records.
        """
        return self.aborted.collect(offset, end_offset) if self.aborted is not None else ()

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The earliest flushed record whose timestamp is at least this; None when there is none."""
        return await offset_for_timestamp(self._reader, self, timestamp_ms)

    async def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp (ListOffsets' MAX_TIMESTAMP); None for an empty log."""
        return await max_timestamp_offset(self._reader, self)

    # Producers.

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        if self.producers is None:
            return
        self.check_open()
        if self.producers.expire(now_ms, self.store.context.config.producer_id_expiration_ms):
            self.store.changed(self)

    @property
    def producer_count(self) -> int:
        """How many producers DescribeProducers lists."""
        return 0 if self.producers is None else len(self.producers)

    def active_producers(self) -> Sequence[ProducerEntry]:
        """The producers that DescribeProducers lists."""
        return list(self.producers.active_producers()) if self.producers is not None else []

    async def rebuild_producers(self) -> None:
        """Read from the batches what their producers did."""
        self.adopt_producers(await read_producers(self._reader, self, INT64_MAX))
        self.store.changed(self)

    # Changing what is there.

    async def truncate_to(self, offset: int) -> None:
        """Drop everything at and beyond offset; returns when that is written. No append may run meanwhile.

        Below the log's start nothing is left: the log is empty then, and goes on at the offset (UnifiedLog.truncateTo).
        A truncation never cuts a file, which other partitions share. It appends a marker run: earlier runs of this
        partition are void from that offset on.
        """
        self.check_open()
        if offset >= self.log_end_offset:
            return
        async with self.store.lock:
            await self.store.writer.flush(sync=False)
            self.check_open()
            if offset >= self.log_end_offset:
                return
            await self._truncate(offset)

    async def _truncate(self, offset: int) -> None:
        """Under the store's lock, with everything written. All that must be read is read before anything changes.

        So a deletion of the log meanwhile, or a cancelled wait, leaves it as it was. A failure of the disk stops the
        store.
        """
        store = self.store
        history = None
        try:
            # What producers did is known of their last five batches; where that is not enough it is read again from
            # the batches that are left.
            if not self.knows_producers_until(offset):
                history = await read_producers(self._reader, self, offset)
            await wait_for_spans(self)
        except LogClosedError:
            raise
        except (OSError, StorageError) as error:
            store.fail(error)
        self.check_open()
        if offset < self.log_start_offset:
            # Retention may have moved the start meanwhile. The log has to end where its leader's parts from it.
            await self._empty(offset)
            return
        store.files.truncate_tables(self.key, offset)
        self.truncated(offset)
        if history is None:
            self.truncate_producers(offset)
        else:
            self.adopt_producers(history)
        self.resized(size_of(self))
        store.writer.add_note(self, RunKind.TRUNCATE, self.latest_epoch, offset)
        # Last, as the disk may be full: then it is written when there is room, and all else is true already.
        await store.writer.flush(sync=False)

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and start again at offset (a follower below its leader's log start)."""
        self.check_open()
        async with self.store.lock:
            await self.store.writer.flush(sync=False)
            self.check_open()
            await self._empty(offset)

    async def _empty(self, offset: int) -> None:
        """Under the store's lock, with everything written: a run without bytes makes all of it void."""
        self.store.files.truncate_tables(self.key, 0)
        self.emptied(offset)
        self.store.writer.add_note(self, RunKind.LOG_START, -1, offset, offset)
        await self.store.writer.flush(sync=False)

    async def advance_log_start_offset(self, offset: int) -> None:
        """Make everything below offset unreadable (DeleteRecords, retention); returns when that is written.

        Raises StorageError; the log is as it was if its files cannot be looked at.
        """
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.high_watermark)
        try:
            await wait_for_spans(self)
        except OSError as error:
            raise StoreOfflineError(f"{self}: its files cannot be looked at: {error}") from error
        if offset > self.log_start_offset:
            self.move_log_start(offset)
            try:
                await self.store.writer.flush(sync=False)
            except DiskFullError:
                # The disk may have become full only meanwhile. A flush that begins on a full disk gives up the reserve.
                await self.store.writer.flush(sync=False)

    def move_log_start(self, offset: int) -> None:
        """Make everything below offset unreadable; the next block says so. The log's spans must be known."""
        self.check_open()
        self.start_moved(offset)
        self.resized(size_of(self))
        self.store.released()
        self.note_log_start()

    def note_log_start(self) -> None:
        """Let the next block say where the log begins."""
        self.check_open()
        self.store.writer.add_note(self, RunKind.LOG_START, self.latest_epoch, self.log_start_offset)

    async def count_size(self) -> None:
        """Count again what the log takes in the files, after a part was taken away."""
        await wait_for_spans(self)
        self.resized(size_of(self))

    async def find_end(self) -> None:
        """Find the end in the runs that are there, after a checkpoint turned out to know more than the files."""
        self.log_end_offset = INT64_MAX
        self.places.unknown()
        await wait_for_spans(self)
        last_offset = self.log_start_offset - 1
        if self.places.spans:
            last_offset = max(last_offset, self.places.spans[-1].last_offset)
        for _, table in self.places.unsealed():
            last_offset = max(last_offset, table.last_offset)
        self.end_found(last_offset + 1)

    async def flush(self) -> None:
        """Write and sync everything appended up to now."""
        self.check_open()
        await self.store.writer.flush(sync=True)

    # What follows for its readers from what happens to it.

    def truncated(self, offset: int) -> None:
        """What lies at and beyond an offset is gone."""
        super().truncated(offset)
        self.places.truncate(offset)
        self._reader.forget(self)
        self._drop_forgotten()
        while self._tail and self._tail[-1].last_offset >= offset:
            group = self._tail[-1]
            group.truncate(offset)
            if group.last_offsets:
                break
            self._tail.pop()

    def emptied(self, offset: int) -> None:
        """Everything is gone; the log goes on at an offset."""
        super().emptied(offset)
        self.places.clear()
        self._reader.forget(self)
        self._tail.clear()
        self._forgotten = 0

    def cleaned(self, end_offset: int, first_dirty_offset: int, aborted: Iterable[AbortedTransaction]) -> None:
        """Compaction has cleaned up to an offset, which blocks in memory do not know: their parts below it go.

        Else readers of the tail would see what was removed, and, as the index forgets the transactions of which no
        record is left, even records that were aborted.
        """
        self.check_open()
        super().cleaned(end_offset, first_dirty_offset, aborted)
        self._reader.forget(self)
        self._drop_forgotten()
        kept = 0
        while kept < len(self._tail) and self._tail[kept].base_offset < end_offset:
            self._tail[kept].release()
            kept += 1
        del self._tail[:kept]
        self.store.changed(self)


def logs_of(store: MessageStore) -> list[PartitionLog]:
    """The open logs of a store."""
    return cast("list[PartitionLog]", list(store.logs.values()))
