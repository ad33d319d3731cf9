"""The background work that makes logs shorter: retention, compaction, the return of space. One task for the node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import BatchHeader, BytesLike, iter_batches
from ottla.storage.config import INT64_MAX
from ottla.storage.errors import StorageError
from ottla.storage.format.block import RunKind
from ottla.storage.reading.reader import read_batches
from ottla.storage.reading.spans import ensure_spans
from ottla.storage.store.maintenance import maintain
from ottla.storage.upkeep.compaction.batch_filter import last_records
from ottla.storage.upkeep.compaction.cleaning import CleaningPass
from ottla.storage.upkeep.compaction.policy import CleanableRange, cleanable_range
from ottla.storage.upkeep.reclaim import keep_map, may_change, reclaim, rewrite_segments
from ottla.storage.upkeep.retention import parts_of, retained_start, size_of
from ottla.storage.upkeep.segment_rewrite import CleanBatch

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.store.context import StorageContext
    from ottla.storage.store.message_store import MessageStore
    from ottla.storage.store.segment import Segment

__all__ = ["Cleaner"]

logger = logging.getLogger(__name__)

_SLICE = 50
_BYTES_PER_KEY = 28


class Cleaner:
    """Serves the stores in turn. `clean` may be called directly, too; passes never overlap."""

    def __init__(self, context: StorageContext, stores: Callable[[], Iterable[MessageStore]]) -> None:
        self._context = context
        self._stores = stores
        self._lock = trio.Lock()
        self._seen: dict[MessageStore, tuple[int, int]] = {}

    async def run(self) -> None:
        """Look at every store from time to time, for ever; memory that lies idle goes back as well.

        Begun one `cleaner_backoff_ms` after the start, with the first look.
        """
        config = self._context.config
        next_retention = trio.current_time() + (config.retention_check_interval_ms - config.cleaner_backoff_ms) / 1000
        while True:
            self._context.pool.trim()
            with_retention = trio.current_time() >= next_retention
            if with_retention:
                next_retention = trio.current_time() + self._context.config.retention_check_interval_ms / 1000
            await self.clean(with_retention=with_retention)
            await trio.sleep(self._context.config.cleaner_backoff_ms / 1000)

    async def clean(self, *, with_retention: bool = True) -> None:
        """One pass over all stores: retention, compaction, space. Damage and failures are logged, not raised."""
        async with self._lock:
            for store in list(self._stores()):
                try:
                    await self._clean_store(store, with_retention=with_retention)
                except StorageError as error:
                    keys = {"path": store.files.directory, "error": str(error)}
                    logger.error("%s: cleaning was given up: %s", store.files.directory, error, extra=keys)  # noqa: TRY400
                except OSError as error:
                    store.fail(error)
                await trio.lowlevel.checkpoint()

    async def _clean_store(self, store: MessageStore, *, with_retention: bool) -> None:
        if store.error is not None or not store.files.segments:
            return
        if with_retention:
            await apply_retention(store)
        if any(segment.is_sealed and segment.position >= store.recovery_position for segment in store.files.segments):
            # Recovery must never begin in a segment that was written anew.
            await maintain(store)
        await self._compact(store)
        seen = (store.files.layout_version, store.released)
        if self._seen.get(store) != seen:
            await reclaim(store)
            self._seen[store] = (store.files.layout_version, store.released)

    # Compaction.

    async def _compact(self, store: MessageStore) -> None:
        due = await _due_logs(store)
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


async def apply_retention(store: MessageStore) -> None:
    """Move the log starts that the topics' settings ask to be moved."""
    now_ms = store.context.clock.time_ms()
    logs = [log for log in store.logs.values() if log.config.delete and log.log_end_offset > log.log_start_offset]
    for first in range(0, len(logs), _SLICE):
        part = [log for log in logs[first : first + _SLICE] if not log.is_closed]
        await ensure_spans(part)
        for log in part:
            if log.spans is None:
                continue
            parts = parts_of(log)
            start = retained_start(parts, log.config, log.log_start_offset, log.high_watermark, now_ms)
            if start > log.log_start_offset:
                log.size_bytes -= sum(part.size_bytes for part in parts if part.last_offset < start)
                log.move_log_start(start)
                store.add_note(log, RunKind.LOG_START, log.latest_epoch, start)
        if log_producers := [log for log in part if log.producers is not None]:
            for log in log_producers:
                log.expire_producers(now_ms)


async def _due_logs(store: MessageStore) -> list[tuple[PartitionLog, CleanableRange]]:
    """The compacted logs whose turn it is, the dirtiest first."""
    logs = [log for log in store.logs.values() if log.config.compact and log not in store.uncleanable]
    due: list[tuple[PartitionLog, CleanableRange]] = []
    for first in range(0, len(logs), _SLICE):
        part = logs[first : first + _SLICE]
        await ensure_spans(part)
        for log in part:
            cleanable = await _cleanable(log)
            if cleanable is not None and cleanable.is_due:
                due.append((log, cleanable))
    due.sort(key=lambda pair: pair[1].dirty_ratio, reverse=True)
    return due


async def _cleanable(log: PartitionLog) -> CleanableRange | None:
    spans = [span for span in (log.spans.spans if log.spans else []) if span.last_offset >= log.log_start_offset]
    if not spans:
        return None
    earliest = None
    if log.config.max_compaction_lag_ms < INT64_MAX:
        dirty = [span for span in spans if span.last_offset >= log.first_dirty_offset]
        earliest = dirty[0].segment.created_at_ms if dirty else None
    return cleanable_range(
        spans,
        log.config,
        first_dirty_offset=log.first_dirty_offset,
        log_start_offset=log.log_start_offset,
        stable_offset=log.last_stable_offset,
        now_ms=log.store.context.clock.time_ms(),
        earliest_dirty_timestamp_ms=earliest,
    )


async def _run_passes(store: MessageStore, chosen: Sequence[tuple[PartitionLog, CleanableRange, int]]) -> None:
    """Compact some logs of a store together: each segment that they share is written anew once."""
    passes: dict[PartitionLog, CleaningPass] = {}
    for log, cleanable, memory_bytes in chosen:
        try:
            passes[log] = await _index(log, cleanable, memory_bytes)
        except (StorageError, ProtocolError) as error:
            logger.error("%s: cannot be compacted: %s", log, error)  # noqa: TRY400
            store.uncleanable.add(log)
    keep = await keep_map(store)
    sizes = {log: size_of(log, work.end_offset) for log, work in passes.items()}
    for log, work in passes.items():
        work.begin_rewrite()
        keep[log.key] = replace(keep[log.key], clean=_cleaner(work, log.log_start_offset))
    wanted = {segment for log, work in passes.items() for segment in _segments_below(log, work.end_offset)}
    for segment in [segment for segment in store.files.segments if segment in wanted]:
        if not may_change(store, segment):
            return
        if not await rewrite_segments(store, [segment], keep):
            store.uncleanable.update(passes)
            return
    await ensure_spans(list(passes))
    for log, work in passes.items():
        log.size_bytes -= sizes[log] - size_of(log, work.end_offset)
        _finish(log, work)
    await maintain(store)


async def _index(log: PartitionLog, cleanable: CleanableRange, memory_bytes: int) -> CleaningPass:
    aborted = [] if log.aborted is None else [each for each in log.aborted if each.first_offset < cleanable.end_offset]
    work = CleaningPass(
        cleanable,
        aborted=aborted,
        producers=last_records(log.producers),
        now_ms=log.store.context.clock.time_ms(),
        delete_retention_ms=log.config.delete_retention_ms,
        memory_bytes=memory_bytes,
    )

    def index(views: Iterable[memoryview]) -> bool:
        return all(work.index(view, pos, header) for view in views for pos, header in iter_batches(view))

    offset = cleanable.first_dirty_offset
    while offset < cleanable.end_offset:
        records, offset = await read_batches(log, offset, cleanable.end_offset)
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
    spans = log.spans.spans if log.spans is not None else []
    start = log.log_start_offset
    return [span.segment for span in spans if span.base_offset < end_offset and span.last_offset >= start]


def _finish(log: PartitionLog, work: CleaningPass) -> None:
    """Note how far the log is clean; a truncation meanwhile has made that less."""
    if log.is_closed or log.log_end_offset < work.end_offset:
        return
    log.first_dirty_offset = work.first_dirty_offset
    if log.aborted is not None:
        log.aborted.replace_before(work.end_offset, work.retained_aborted)
    log.store.dirty[log] = None
