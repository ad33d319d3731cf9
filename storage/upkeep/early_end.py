"""The end of the segment that is being written, before it is full: once what it holds is dead.

Only what is sealed can be given back. When nothing of the active segment lives, the next block begins a new one, as
Kafka rolls a segment that has expired as a whole. The same if half of it is dead, provided that this is as much as is
written between two checkpoints: else a topic with little traffic would be divided into many small segments.
"""

from __future__ import annotations

from typing import cast

import trio

from ottla.runtime.time_slice import TimeSlice
from ottla.storage.format.checkpoint import log_start_of
from ottla.storage.format.run_table import RunTable
from ottla.storage.log.partition_log import PartitionLog, logs_of
from ottla.storage.store.message_store import MessageStore
from ottla.storage.store.segment import Segment

__all__ = ["end_dead_segment", "end_segment", "has_dead_runs"]

_RUNS = 1000


async def end_dead_segment(store: MessageStore) -> None:
    """Begin a new segment if that is worth it, and wait until it is begun."""
    segment = store.files.active
    if segment is None or not await _is_dead(store, segment):
        return
    store.end_segment(segment)
    # What says where they go on should outlive the segment with their records, as it is in no other file than the
    # checkpoint. It is also what the new segment begins with, and without anything it would not begin.
    shortened: PartitionLog | None = None
    is_begun = False
    time_slice = TimeSlice()
    for log in logs_of(store):
        await time_slice.maybe_yield()
        if log.is_closed or not log.log_start_offset:
            continue
        if log.log_start_offset == log.log_end_offset:
            log.note_log_start()
            is_begun = True
        else:
            shortened = log
    if not is_begun and shortened is not None and not shortened.is_closed:
        shortened.note_log_start()
    await store.writer.flush(sync=False)


async def end_segment(store: MessageStore) -> None:
    """Begin a new segment, unless the active one is empty, and wait until it is begun."""
    segment = store.files.active
    log = next((log for log in logs_of(store) if not log.is_closed), None)
    if segment is None or not segment.tables or log is None:
        return
    store.end_segment(segment)
    log.note_log_start()
    await store.writer.flush(sync=False)


def has_dead_runs(store: MessageStore) -> bool:
    """Whether anything of the active segment is dead: for a store with few logs, as it looks at each."""
    segment = store.files.active
    for key, table in (segment.tables or {}).items() if segment is not None else ():
        start = _log_start(store, key)
        if len(table) and (start is None or start > table.base_offset):
            return True
    return False


async def _is_dead(store: MessageStore, segment: Segment) -> bool:
    """Whether so much of the active segment is dead that it should be given back."""
    live_bytes = dead_bytes = 0
    time_slice = TimeSlice()
    for key, table in list((segment.tables or {}).items()):
        await time_slice.maybe_yield()
        start = _log_start(store, key)
        live = 0 if start is None else await _bytes_from(table, start)
        live_bytes += live
        dead_bytes += table.size_bytes - live
    if not live_bytes:
        return dead_bytes > 0
    config = store.context.config
    if dead_bytes < config.rewrite_dead_ratio * (live_bytes + dead_bytes):
        return False
    if store.context.space.is_full:
        # What lives is often no more than a block that waited for room when the rest was deleted.
        return await store.context.space.find_room(live_bytes)
    return dead_bytes >= config.checkpoint_bytes


async def _bytes_from(table: RunTable, offset: int) -> int:
    """The bytes of the runs that reach this offset."""
    first = table.find_offset(offset)
    found = 0
    for number in range(first, len(table), _RUNS):
        if number > first:
            await trio.lowlevel.checkpoint()
        found += table.bytes_of(number, number + _RUNS)
    return found


def _log_start(store: MessageStore, key: bytes) -> int | None:
    """Where a partition begins, open or not; None if it was deleted."""
    log = cast("PartitionLog | None", store.logs.get(key))
    if log is None:
        state = store.snapshots.get(key)
        return None if state is None else log_start_of(state)
    return log.log_start_offset
