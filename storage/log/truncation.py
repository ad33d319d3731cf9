"""Taking records away from the end of a log, and what follows from it.

A truncation never cuts a file, which other partitions share: it is a run without bytes, from which on everything of the
partition that was written before, at and beyond an offset, is void. What producers did is known of their last five
batches; where that is not enough it is read anew from the batches that are left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.kproto.records import iter_batches
from ottla.storage.config import INT64_MAX
from ottla.storage.format.block import RunKind
from ottla.storage.log.append import replay_producer
from ottla.storage.reading.reader import read_batches
from ottla.storage.reading.spans import ensure_spans, unsealed_tables
from ottla.storage.upkeep.retention import size_of

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.state.aborted_transactions import AbortedTransactions
    from ottla.storage.state.producer_state import ProducerStateManager

__all__ = ["rebuild_producers", "recover_end", "truncate_fully_and_start_at", "truncate_to"]


async def truncate_to(log: PartitionLog, offset: int) -> None:
    """See `PartitionLog.truncate_to`."""
    log.check_open()
    offset = max(offset, log.log_start_offset)
    if offset >= log.log_end_offset:
        return
    async with log.store.lock:
        await log.store.flush(sync=False)
        log.store.files.truncate_tables(log.key, offset)
        log.forget_from(offset)
        log.store.add_note(log, RunKind.TRUNCATE, log.latest_epoch, offset)
        await log.store.flush(sync=False)
        # Under the lock: no checkpoint may take the state half rebuilt.
        if log.producers is not None and not log.producers.truncate_from_end(offset):
            await rebuild_producers(log)
        await ensure_spans([log])
        log.size_bytes = size_of(log)


async def truncate_fully_and_start_at(log: PartitionLog, offset: int) -> None:
    """See `PartitionLog.truncate_fully_and_start_at`."""
    log.check_open()
    async with log.store.lock:
        await log.store.flush(sync=False)
        log.store.files.truncate_tables(log.key, 0)
        log.start_at(offset)
        log.store.add_note(log, RunKind.LOG_START, -1, offset, offset)
        await log.store.flush(sync=False)


class _Rebuilt:
    """What the producers did, as the batches say; it takes the place of the log's own when all is read."""

    __slots__ = ("aborted", "producers")

    def __init__(self) -> None:
        self.producers: ProducerStateManager | None = None
        self.aborted: AbortedTransactions | None = None

    def replay(self, views: Iterable[memoryview]) -> None:
        for view in views:
            for pos, header in iter_batches(view):
                replay_producer(self, view[pos : pos + header.size_bytes], header)


async def rebuild_producers(log: PartitionLog) -> None:
    """Read from the batches what their producers did."""
    rebuilt = _Rebuilt()
    offset, end_offset = log.log_start_offset, log.flushed_end_offset
    while offset < end_offset:
        records, offset = await read_batches(log, offset, end_offset)
        with records:
            await log.store.context.offload(rebuilt.replay, list(records))
    log.producers, log.aborted = rebuilt.producers, rebuilt.aborted
    log.set_high_watermark(log.high_watermark)
    log.store.dirty[log] = None


async def recover_end(log: PartitionLog) -> None:
    """Find the end of a log in the runs that are there, after a checkpoint turned out to know more than the files."""
    log.log_end_offset = INT64_MAX
    log.spans = None
    await ensure_spans([log])
    assert log.spans is not None
    last_offset = log.log_start_offset - 1
    if log.spans.spans:
        last_offset = max(last_offset, log.spans.spans[-1].last_offset)
    for _, table in unsealed_tables(log):
        last_offset = max(last_offset, table.last_offset)
    log.log_end_offset = last_offset + 1
    log.forget_from(last_offset + 1)
    log.flushed_end_offset = log.high_watermark = log.log_end_offset
