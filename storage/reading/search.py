"""Finding records by timestamp: the runs' cumulative maxima lead to a run, its batch headers to a batch.

Markers count as records here, as they do in Kafka (`FileRecords.searchForTimestamp`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.kproto.records import find_timestamp, iter_batches
from ottla.storage.reading.locate import ensure_spans
from ottla.storage.reading.places import Span
from ottla.storage.reading.plan import ReadableLog
from ottla.storage.reading.reader import Reader
from ottla.storage.store.index_files import load_index
from ottla.storage.store.segment import pinned

__all__ = ["TimestampOffset", "max_timestamp_offset", "offset_for_timestamp"]


class TimestampOffset(NamedTuple):
    """A record found by timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


async def offset_for_timestamp(reader: Reader, log: ReadableLog, timestamp_ms: int) -> TimestampOffset | None:
    """See `PartitionLog.offset_for_timestamp`."""
    log.check_open()
    await ensure_spans([log])
    run = await _run_with(log, timestamp_ms)
    return None if run is None else await _first_record(reader, log, run, timestamp_ms)


async def max_timestamp_offset(reader: Reader, log: ReadableLog) -> TimestampOffset | None:
    """See `PartitionLog.max_timestamp_offset`."""
    log.check_open()
    await ensure_spans([log])
    maxima = [span.max_timestamp_ms for span in log.places.spans if span.last_offset >= log.log_start_offset]
    maxima += [table.max_timestamp_ms for _, table in log.places.unsealed()]
    if not maxima or log.log_start_offset >= log.flushed_end_offset:
        return None
    found = await offset_for_timestamp(reader, log, max(maxima))
    # The maximum may have been below the log start, or cut by a truncation: then only the batches know.
    return found if found is not None else await _scan_for_maximum(reader, log)


async def _run_with(log: ReadableLog, timestamp_ms: int) -> range | None:
    """The offsets of the first run that may hold a timestamp of at least this."""
    for span in log.places.spans:
        if span.max_timestamp_ms >= timestamp_ms and span.last_offset >= log.log_start_offset:
            found = await _page_lookup(log, span, timestamp_ms)
            if found is not None:
                return found
    for _, table in log.places.unsealed():
        index = table.find_timestamp(timestamp_ms)
        if index < len(table):
            run = table[index]
            return range(run.base_offset, run.last_offset + 1)
    return None


async def _page_lookup(log: ReadableLog, span: Span, timestamp_ms: int) -> range | None:
    segment, context = span.segment, log.store.context
    with log.store.gate, pinned([segment]), context.fd_cache.pinned(segment.index_path) as handle:

        def look_up() -> range | None:
            index = load_index(context.disk, segment)
            place = index.find_timestamp(span.pages, timestamp_ms)
            if place == span.pages.stop:
                return None
            table = index.read_page(context.disk, handle, index.page(place))
            run = table[table.find_timestamp(timestamp_ms)]
            return range(run.base_offset, min(run.last_offset, span.last_offset) + 1) or None

        return await context.offload(look_up)


async def _first_record(reader: Reader, log: ReadableLog, run: range, timestamp_ms: int) -> TimestampOffset | None:
    """The first record from a run on, and not below the log start, whose timestamp is at least this."""
    offset = max(run.start, log.log_start_offset)
    while offset < log.flushed_end_offset:
        start = max(offset, log.log_start_offset)
        # The run itself nearly always has it. What follows it may lie in many files.
        end_offset = run.stop if offset < run.stop else log.flushed_end_offset
        records, offset = await reader.read_batches(log, offset, min(end_offset, log.flushed_end_offset))
        with records:
            # Records may have to be decompressed, and there may be very many.
            found = await log.store.context.offload(_find_record, list(records), start, timestamp_ms)
        if found is not None:
            return found
    return None


def _find_record(views: Iterable[memoryview], offset: int, timestamp_ms: int) -> TimestampOffset | None:
    for view in views:
        if (found := find_timestamp(view, timestamp_ms, offset)) is not None:
            return TimestampOffset(*found)
    return None


async def _scan_for_maximum(reader: Reader, log: ReadableLog) -> TimestampOffset | None:
    largest = -1
    offset = log.log_start_offset
    while offset < log.flushed_end_offset:
        records, offset = await reader.read_batches(log, offset, log.flushed_end_offset)
        with records:
            for view in records:
                largest = max([largest, *(header.max_timestamp_ms for _, header in iter_batches(view))])
    return await _first_record(reader, log, range(log.log_start_offset, log.flushed_end_offset), largest)
