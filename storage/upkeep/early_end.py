"""The end of the segment that is being written, before it is full: once what it holds is dead.

Only what is sealed can be given back. When nothing of the active segment lives, the next block begins a new one, as
Kafka rolls a segment that has expired as a whole. The same if half of it is dead, provided that this is as much as is
written between two checkpoints: else a topic with little traffic would be divided into many small segments.
"""

from __future__ import annotations

from typing import cast

import trio

from ottla.storage.format.checkpoint import log_start_of
from ottla.storage.log.partition_log import PartitionLog, logs_of
from ottla.storage.store.message_store import MessageStore
from ottla.storage.store.segment import Segment

__all__ = ["end_dead_segment"]

_SLICE = 20


async def end_dead_segment(store: MessageStore) -> None:
    """Begin a new segment if that is worth it, and wait until it is begun."""
    segment = store.files.active
    if segment is None or not await _is_dead(store, segment):
        return
    store.end_segment(segment)
    # What says where they go on should outlive the segment with their records, as it is in no other file than the
    # checkpoint. It is also what the new segment begins with.
    for number, log in enumerate(logs_of(store), 1):
        if number % _SLICE == 0:
            await trio.lowlevel.checkpoint()
        if not log.is_closed and log.log_start_offset == log.log_end_offset > 0:
            log.note_log_start()
    await store.writer.flush(sync=False)


async def _is_dead(store: MessageStore, segment: Segment) -> bool:
    """Whether so much of the active segment is dead that it should be given back."""
    live_bytes = dead_bytes = 0
    for number, (key, table) in enumerate(list((segment.tables or {}).items()), 1):
        if number % _SLICE == 0:
            await trio.lowlevel.checkpoint()
        start = _log_start(store, key)
        if start is not None and len(table) and table.last_offset >= start:
            live_bytes += table.size_bytes
        else:
            dead_bytes += table.size_bytes
    if not live_bytes:
        return dead_bytes > 0
    if store.context.space.is_full:
        # There is no room to rewrite it.
        return False
    config = store.context.config
    dead_ratio = dead_bytes / (live_bytes + dead_bytes)
    return dead_bytes >= config.checkpoint_bytes and dead_ratio >= config.rewrite_dead_ratio


def _log_start(store: MessageStore, key: bytes) -> int | None:
    """Where a partition begins, open or not; None if it was deleted."""
    log = cast("PartitionLog | None", store.logs.get(key))
    if log is None:
        state = store.snapshots.get(key)
        return None if state is None else log_start_of(state)
    return log.log_start_offset
