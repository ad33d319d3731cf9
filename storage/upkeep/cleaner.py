"""The background work that makes logs shorter: retention, compaction, the return of space. One task for the node."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import BatchHeader, BytesLike, iter_batches, parse_batch_header
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.config import INT64_MAX
from ottla.storage.errors import LogClosedError, OffsetOutOfRangeError, StorageError
from ottla.storage.log.partition_log import PartitionLog, logs_of
from ottla.storage.reading.locate import ensure_spans
from ottla.storage.reading.parts import parts_of
from ottla.storage.reading.plan import read
from ottla.storage.store.context import StorageContext
from ottla.storage.store.maintenance import list_sealed_segments, maintain
from ottla.storage.store.message_store import MessageStore
from ottla.storage.store.segment import Segment
from ottla.storage.upkeep.compaction.batch_filter import last_records
from ottla.storage.upkeep.compaction.cleaning import CleaningPass
from ottla.storage.upkeep.compaction.policy import CleanableRange, cleanable_range
from ottla.storage.upkeep.early_end import end_dead_segment, end_segment, has_dead_runs
from ottla.storage.upkeep.ending_store import ending_store
from ottla.storage.upkeep.reclaim import keep_map, may_change, reclaim, rewrite_segments
from ottla.storage.upkeep.retention import retained_start
from ottla.storage.upkeep.segment_rewrite import CleanBatch

__all__ = ["Cleaner"]

logger = logging.getLogger(__name__)

_FULL_PAUSE_SECONDS = 1.0
# The spans of so many logs are found by one call of a worker thread.
_LOGS_A_CALL = 50
# To find out that a store has no work takes 4 to 20 µs, and as much again for each of its other logs.
_FEW_LOGS = 20
_BYTES_PER_KEY = 28


class Cleaner:
    """Serves the stores in turn. `clean` may be called directly, too; passes never overlap."""

    def __init__(self, context: StorageContext, stores: Mapping[str, MessageStore]) -> None:
        self._context = context
        self._stores = stores
        self._lock = trio.Lock()

    async def run(self) -> None:
        """Look at every store from time to time, forever; memory that lies idle goes back as well.

        Begun one `cleaner_backoff_ms` after the start, with the first look.
        """
        config = self._context.config
        began = trio.current_time() - config.cleaner_backoff_ms / 1000
        next_retention = began + config.retention_check_interval_ms / 1000
        next_expiry = began + config.producer_id_expiration_check_interval_ms / 1000
        while True:
            config = self._context.config
            self._context.pool.trim()
            with_retention = trio.current_time() >= next_retention
            if with_retention:
                next_retention = trio.current_time() + config.retention_check_interval_ms / 1000
            with_producers = trio.current_time() >= next_expiry
            if with_producers:
                next_expiry = trio.current_time() + config.producer_id_expiration_check_interval_ms / 1000
            await self.clean(with_retention=with_retention, with_producers=with_producers)
            # Retention, or expiry of producers, may be wanted more often than compaction.
            until_next = max(0.0, min(next_retention, next_expiry) - trio.current_time())
            with trio.move_on_after(min(self._context.config.cleaner_backoff_ms / 1000, until_next)):
                await self._context.space.until_full()
                # What is deleted now is wanted back soon.
                await trio.sleep(_FULL_PAUSE_SECONDS)

    async def clean(self, *, with_retention: bool = True, with_producers: bool = True) -> None:
        """One pass over all stores: producers, retention, compaction, space. Damage and failures are logged.

        What nobody foresaw is raised when all stores have had their turn, in a group: one cannot hold up the others.
        """

        def is_due(store: MessageStore) -> bool:
            return bool(store.files.segments) and (
                _has_work(store)
                or (with_retention and _may_have_aged(store))
                or (with_producers and _has_producers(store))
            )

        await self._each(
            partial(self._clean_store, with_retention=with_retention, with_producers=with_producers), is_due
        )

    async def compact(self) -> None:
        """Compact all logs that are compacted, as far as their last records and however little of them is dirty."""
        await self._each(self._compact_whole, _is_compacted)

    async def _each(
        self, work: Callable[[MessageStore], Awaitable[None]], is_due: Callable[[MessageStore], bool]
    ) -> None:
        """Work on the stores that are due, one after the other. The others, which are most of many, are passed over
        several in one turn of the event loop.
        """
        unforeseen: list[Exception] = []
        async with self._lock:
            time_slice = TimeSlice()
            for store in list(self._stores.values()):
                await time_slice.maybe_yield()
                if not store.is_usable or not is_due(store):
                    continue
                try:
                    # Cancelled when the store is closed meanwhile.
                    with store.gate.interruptible():
                        await work(store)
                except LogClosedError:
                    pass
                except StorageError as error:
                    keys = {"path": store.files.directory, "error": str(error)}
                    logger.error("%s: cleaning was given up: %s", store.files.directory, error, extra=keys)  # noqa: TRY400
                except OSError as error:
                    if not store.files.may_try_again(error):
                        store.fail(error)
                    else:
                        logger.warning("%s: cleaning is tried again later: %s", store.files.directory, error)
                except Exception as error:  # noqa: BLE001 - it is raised below
                    error.add_note(f"while {store.files.directory} was cleaned")
                    unforeseen.append(error)
                await trio.lowlevel.checkpoint()

        if unforeseen:
            raise ExceptionGroup("cleaning has failed", unforeseen)

    async def _clean_store(self, store: MessageStore, *, with_retention: bool, with_producers: bool) -> None:
        if with_producers:
            await expire_producers(store)
        if with_retention:
            await apply_retention(store)
        if with_retention or store.context.space.is_full:
            await end_dead_segment(store)
        if _wants_checkpoint(store):
            # Recovery must never begin in a segment that was rewritten.
            with ending_store(store):
                await maintain(store, makes_room=store.context.space.is_full)
        if not store.context.space.is_full:
            await self._compact(store)
        if store.may_reclaim:
            await reclaim(store)
            store.reclaimed()

    # Compaction.

    async def _compact_whole(self, store: MessageStore) -> None:
        await end_segment(store)
        with ending_store(store):
            await maintain(store)
        await self._compact(store, only_due=False)

    async def _compact(self, store: MessageStore, *, only_due: bool = True) -> None:
        due = await _compactable_logs(store, only_due=only_due)
        budget = store.context.config.cleaner_dedupe_buffer_bytes
        chosen: list[tuple[PartitionLog, CleanableRange, int]] = []
        for log, cleanable in due:
            keys = cleanable.end_offset - cleanable.first_dirty_offset
            memory_bytes = min(keys * _BYTES_PER_KEY + 4096, store.context.config.cleaner_dedupe_buffer_bytes)
            if chosen and memory_bytes > budget:
                break
            budget -= memory_bytes
            chosen.append((log, cleanable, memory_bytes))
        if chosen:
            await _run_passes(store, chosen)


def _has_work(store: MessageStore) -> bool:
    """Whether a pass may find something to do, apart from what grows old."""
    return store.context.space.is_full or store.may_reclaim or _wants_checkpoint(store) or _is_compacted(store)


def _wants_checkpoint(store: MessageStore) -> bool:
    """Whether something was rolled and is not sealed, or was sealed since the last checkpoint."""
    segments = store.files.segments
    return len(store.files.unsealed) > 1 or any(
        segment.is_sealed and segment.position >= store.recovery_position for segment in segments
    )


def _may_have_aged(store: MessageStore) -> bool:
    """Whether retention may find something to do. Where it is known at once that it will not, as of a store with one
    file of which all is live: of others an index must be read, or they have too many logs for one step.
    """
    active = store.files.active
    if active is None or len(store.files.segments) > 1 or max(len(store.logs), len(active.tables or ())) > _FEW_LOGS:
        return True
    return has_dead_runs(store) or any(
        (log.places.spans and not log.places.are_known) or _retained_start(log) > log.log_start_offset
        for log in logs_of(store)
    )


def _has_producers(store: MessageStore) -> bool:
    return any(log.producers is not None for log in logs_of(store))


def _is_compacted(store: MessageStore) -> bool:
    return any(log.config.compact for log in store.logs.values())


async def expire_producers(store: MessageStore) -> None:
    """Forget producers that have been silent for long, whatever the topic's policy for its records is."""
    now_ms = store.context.clock.time_ms()
    time_slice = TimeSlice()
    for log in logs_of(store):
        await time_slice.maybe_yield()
        if not log.is_closed:
            log.expire_producers(now_ms)


async def apply_retention(store: MessageStore) -> None:
    """Move the log starts that the topics' settings ask to be moved."""
    logs = [log for log in logs_of(store) if log.config.delete and log.log_end_offset > log.log_start_offset]
    for first in range(0, len(logs), _LOGS_A_CALL):
        part = [log for log in logs[first : first + _LOGS_A_CALL] if not log.is_closed]
        await ensure_spans(part)
        for log in part:
            if log.is_closed or not log.places.are_known:
                continue
            start = _retained_start(log)
            if start > log.log_start_offset:
                log.move_log_start(start)


def _retained_start(log: PartitionLog) -> int:
    """Where a log of which the spans are known should begin."""
    now_ms = log.store.context.clock.time_ms()
    return retained_start(parts_of(log), log.config, log.log_start_offset, log.high_watermark, now_ms)


async def _compactable_logs(store: MessageStore, *, only_due: bool) -> list[tuple[PartitionLog, CleanableRange]]:
    """The compacted logs whose turn it is, or all, the dirtiest first."""
    logs = [log for log in logs_of(store) if log.config.compact and log not in store.uncleanable]
    due: list[tuple[PartitionLog, CleanableRange]] = []
    for first in range(0, len(logs), _LOGS_A_CALL):
        part = [log for log in logs[first : first + _LOGS_A_CALL] if not log.is_closed]
        await ensure_spans(part)
        for log in part:
            if log.is_closed:
                continue
            cleanable = await _cleanable(log)
            if cleanable is not None and (cleanable.is_due or not only_due):
                due.append((log, cleanable))
    due.sort(key=lambda pair: pair[1].dirty_ratio, reverse=True)
    return due


async def _cleanable(log: PartitionLog) -> CleanableRange | None:
    spans = [span for span in log.places.spans if span.last_offset >= log.log_start_offset]
    if not spans:
        return None
    return cleanable_range(
        spans,
        log.config,
        first_dirty_offset=log.first_dirty_offset,
        log_start_offset=log.log_start_offset,
        stable_offset=log.last_stable_offset,
        now_ms=log.store.context.clock.time_ms(),
        earliest_dirty_timestamp_ms=await _first_dirty_timestamp(log),
    )


async def _first_dirty_timestamp(log: PartitionLog) -> int | None:
    """The time of the first record that was not compacted yet, as Kafka takes it: its batch's largest timestamp.

    None where nobody needs it, because the topic has no `max.compaction.lag.ms`, or it cannot be known.
    """
    if log.config.max_compaction_lag_ms == INT64_MAX:
        return None
    offset = max(log.first_dirty_offset, log.log_start_offset)
    if offset >= log.flushed_end_offset:
        return None
    plan = log.plan_read(offset, max_bytes=1, end_offset=log.flushed_end_offset, min_one_batch=True)
    await read([plan])
    records = plan.records
    if records is None:
        return None
    with records:
        first = next(iter(records), None)
        timestamp_ms = parse_batch_header(first).max_timestamp_ms if first is not None else -1
    return timestamp_ms if timestamp_ms > 0 else None


async def _run_passes(store: MessageStore, chosen: Sequence[tuple[PartitionLog, CleanableRange, int]]) -> None:
    """Compact some logs of a store together: each segment that they share is rewritten once."""
    lineages = {log: log.lineage for log, _, _ in chosen}
    passes = await _index_all(store, chosen)
    keep = await keep_map(store)
    for log, work in passes.items():
        if not log.is_closed:
            work.begin_rewrite()
            keep[log.key] = replace(keep[log.key], clean=_cleaner(work, log.log_start_offset))
    wanted = {segment for log, work in passes.items() for segment in _segments_below(log, work.end_offset)}
    for segment in [segment for segment in store.files.segments if segment in wanted]:
        if not may_change(store, segment):
            return
        if not await rewrite_segments(store, [segment], keep):
            for log in passes:
                store.damaged(log)
            return
    # Before the logs are told: a segment of which nothing was left must not come back behind a checkpoint that calls it
    # clean, or the records that it had would never be removed again.
    await list_sealed_segments(store)
    for log, work in passes.items():
        # After a truncation the pass speaks of records that are gone: the next one does it again.
        if not log.is_closed and log.lineage == lineages[log]:
            log.cleaned(work.end_offset, work.first_dirty_offset, work.retained_aborted)
    for log in passes:
        if not log.is_closed:
            await log.count_size()
    await maintain(store)


async def _index_all(
    store: MessageStore, chosen: Sequence[tuple[PartitionLog, CleanableRange, int]]
) -> dict[PartitionLog, CleaningPass]:
    passes: dict[PartitionLog, CleaningPass] = {}
    for log, cleanable, memory_bytes in chosen:
        try:
            passes[log] = await _index(log, cleanable, memory_bytes)
        except (LogClosedError, OffsetOutOfRangeError):
            continue  # deleted meanwhile, or shortened: then the next pass sees it as it is
        except (StorageError, ProtocolError) as error:
            logger.error("%s: cannot be compacted: %s", log, error)  # noqa: TRY400
            store.damaged(log)
    return passes


async def _index(log: PartitionLog, cleanable: CleanableRange, memory_bytes: int) -> CleaningPass:
    aborted = [] if log.aborted is None else [each for each in log.aborted if each.first_offset < cleanable.end_offset]
    work = CleaningPass(
        cleanable,
        aborted=aborted,
        producers=last_records(log.producers),
        high_watermark=log.high_watermark,
        now_ms=log.store.context.clock.time_ms(),
        delete_retention_ms=log.config.delete_retention_ms,
        memory_bytes=memory_bytes,
    )

    def index(views: Iterable[memoryview]) -> bool:
        return all(work.index(view, pos, header) for view in views for pos, header in iter_batches(view))

    offset = cleanable.first_dirty_offset
    while (offset := max(offset, log.log_start_offset)) < cleanable.end_offset:
        records, offset = await log.read_batches(offset, cleanable.end_offset)
        with records:
            if not await log.store.context.offload(index, list(records)):
                break
    return work


def _cleaner(work: CleaningPass, log_start: int) -> CleanBatch:
    def clean(buf: BytesLike, pos: int, batch: BatchHeader) -> BytesLike | None:
        if batch.last_offset < log_start:
            return None
        if batch.base_offset >= work.end_offset:
            return memoryview(buf)[pos : pos + batch.size_bytes]
        return work.clean(buf, pos, batch)

    return clean


def _segments_below(log: PartitionLog, end_offset: int) -> list[Segment]:
    start = log.log_start_offset
    return [span.segment for span in log.places.spans if span.base_offset < end_offset and span.last_offset >= start]
