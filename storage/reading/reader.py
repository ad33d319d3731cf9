"""Reading: a plan per partition, made without waiting, and one call which fills all plans of a fetch.

What is flushed and still in memory is shared at once. What the page cache holds is read on the event loop
(`RWF_NOWAIT`), in small steps, if its place is known; for all the rest of a fetch there is one worker-thread call.
Where a log is read in order, the page cache is asked for what comes next (`read_ahead`), and the next range is read
while the last one is on its way to the client (`prefetch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from ottla.storage.errors import CorruptLogError
from ottla.storage.memory.iobuf import IOBuf
from ottla.storage.reading.extents import spans_from, unsealed_extents, wanted_after
from ottla.storage.reading.file_read import STEP_BYTES, FileRead
from ottla.storage.reading.spans import ensure_spans, layout_of, unsealed_tables

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.store.context import StorageContext
    from ottla.storage.store.memstore import RunGroup

__all__ = ["MOMENT_SECONDS", "ReadPlan", "fill", "read", "read_batches"]

MOMENT_SECONDS = 1.0
"""Who reads a log in order comes again within it: what is read less often is not worth reading ahead."""

# Memory for a large first batch, a rebuilt index, exchanged segments: each asks for one more attempt.
_MAX_ATTEMPTS = 8
_SCAN_BYTES = 1_048_576
# A fetch of more partitions lets others run in between.
_PREPARED_AT_ONCE = 32


class ReadPlan:
    """What one partition's read will return; made by `PartitionLog.plan_read`, filled by `read`.

    `records` holds whole batches, the first of which contains `offset`. It is never beyond `end_offset` and
    never larger than `max_bytes`, except that its first batch is there whole if `min_one_batch` was asked.
    The owner calls `release` when the bytes of `records` have been sent. `error` is set instead when the log is damaged
    at this place (`CorruptLogError`) or the disk cannot be read. `size_bytes` before the read is an upper estimate of
    what it will take. `next_offset` is where the following read continues. `goes_on` tells that files were read, from
    where the read of this log's files before it had ended, a moment ago.
    """

    __slots__ = (
        "_records",
        "end_offset",
        "error",
        "goes_on",
        "log",
        "max_bytes",
        "min_one_batch",
        "needed_bytes",
        "next_offset",
        "offset",
        "records",
    )

    def __init__(self, log: PartitionLog, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool) -> None:
        self.log = log
        self.offset = offset
        self.max_bytes = max_bytes
        self.end_offset = end_offset
        self.min_one_batch = min_one_batch
        self.next_offset = offset
        self.needed_bytes = 0
        self.goes_on = False
        self.records: IOBuf | None = None
        self.error: Exception | None = None
        self._records = IOBuf()

    @property
    def size_bytes(self) -> int:
        """The bytes of `records`, or an upper estimate of what they will be."""
        return self.records.size_bytes if self.records is not None else min(self.max_bytes, self.log.size_bytes)

    @property
    def is_complete(self) -> bool:
        """True when nothing is left to read: the plan was answered from memory, or there is no data."""
        return self.records is not None or self.error is not None

    def read_group(self, group: RunGroup) -> bool:
        """Share batches of a block in memory; False when no more fit."""
        following = group.read(
            self._records, self.next_offset, self.end_offset, self.max_bytes, min_one_batch=self.min_one_batch
        )
        if following >= 0:
            self.next_offset = following
        return following >= 0

    def complete(self) -> None:
        """Nothing is left to read."""
        self.records = self._records

    def complete_from_files(self, records: IOBuf, next_offset: int) -> None:
        """All that was wanted was read out of files."""
        end_offset, time = self.log.last_read
        now = trio.current_time()
        self.goes_on = (
            end_offset == self.offset and now - time < MOMENT_SECONDS and 0 < records.size_bytes <= self.max_bytes
        )
        self.log.last_read = next_offset, now
        self.next_offset = next_offset
        self.records = records

    def release(self) -> None:
        """The bytes were sent, or nobody wants them: their memory is free, and may take what follows them."""
        if self.records is not None:
            self.records.release()
            if self.goes_on:
                self.log.store.context.prefetch.go_on(self)


async def read(plans: Sequence[ReadPlan]) -> None:
    """Fill the `records` of every plan: from what was read ahead, else as `fill` does."""
    plans = [plan for plan in plans if not plan.is_complete]
    if plans:
        prefetch = plans[0].log.store.context.prefetch
        if len(prefetch):
            for plan in plans:
                await prefetch.take(plan)
        await fill(plans)


async def fill(plans: Sequence[ReadPlan]) -> None:
    """Fill the `records` of every plan: from memory and the page cache at once, all else in one thread call."""
    plans = [plan for plan in plans if not plan.is_complete]
    if not plans:
        return
    context = plans[0].log.store.context
    for _ in range(_MAX_ATTEMPTS):
        try:
            await context.read_ahead.settle(plans)
            await _locate_sealed(plans)
            plans = await _read_files(context, plans)
        except OSError as error:
            for plan in plans:
                plan.error = error
            return
        if not plans:
            return
    for plan in plans:
        plan.error = CorruptLogError(f"{plan.log}: cannot be read at offset {plan.offset}")


async def _locate_sealed(plans: Sequence[ReadPlan]) -> None:
    """Derive the spans of those logs whose plan begins before their runs in memory.

    Looks again after each wait: meanwhile a segment may have been sealed under another plan of the same fetch.
    """
    while logs := [plan.log for plan in plans if _lacks_spans(plan)]:
        await ensure_spans(logs)


def _lacks_spans(plan: ReadPlan) -> bool:
    log = plan.log
    if log.spans is not None and log.spans.layout_version == layout_of(log):
        return False
    tables = unsealed_tables(log)
    return not tables or plan.offset < tables[0][1].base_offset


async def _read_files(context: StorageContext, plans: Sequence[ReadPlan]) -> list[ReadPlan]:
    """Read what the plans need; returns those which must be read again, with more memory for a large first batch."""
    again: list[ReadPlan] = []
    followed: list[ReadPlan] = []
    reads: dict[ReadPlan, FileRead] = {}
    try:
        for number, plan in enumerate(plans, 1):
            if number % _PREPARED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if _lacks_spans(plan):
                # Segments were exchanged since: what is known of their files is not true any more.
                again.append(plan)
                continue
            work = reads[plan] = FileRead(
                context, plan.offset, plan.end_offset, plan.max_bytes, min_one_batch=plan.min_one_batch
            )
            _prepare(work, plan)
        cold = await _read_inline(context, list(reads.values()))
        for work in cold:
            work.is_cold = True
        if cold:
            await context.offload(_run_all, cold)
        for plan, work in reads.items():
            if _finish(context, plan, work):
                again.append(plan)
            elif plan.error is None and context.read_ahead.on_read(plan, was_cold=work.is_cold):
                followed.append(plan)
        if followed:
            context.read_ahead.look(followed)
    finally:
        for work in reads.values():
            work.close()
    return again


async def _read_inline(context: StorageContext, reads: Sequence[FileRead]) -> list[FileRead]:
    """Read what the page cache holds, and let others run in between; returns those that a worker thread must read."""
    cold: list[FileRead] = []
    limit_bytes = context.config.inline_read_bytes
    held_bytes = 0
    for work in reads:
        if not work.may_run_inline(limit_bytes):
            cold.append(work)
            continue
        while not work.is_done:
            if held_bytes >= STEP_BYTES:
                await trio.lowlevel.checkpoint()
                held_bytes = 0
            read_bytes = work.step()
            if not read_bytes and not work.is_done:
                cold.append(work)
                break
            held_bytes += read_bytes
    return cold


def _finish(context: StorageContext, plan: ReadPlan, work: FileRead) -> bool:
    """Take over what was read; True if the plan must be read again."""
    if work.error is not None:
        plan.error = work.error
    elif work.damaged_index is not None:
        context.fd_cache.drop(work.damaged_index.index_path)
        plan.log.spans = None
        return True
    elif work.needed_bytes:
        plan.needed_bytes = work.needed_bytes
        return True
    else:
        plan.log.read_hint = work.hint
        plan.complete_from_files(work.take_records(), work.next_offset)
    return False


def _run_all(reads: Sequence[FileRead]) -> None:
    for work in reads:
        work.run()


def _prepare(work: FileRead, plan: ReadPlan) -> None:
    """Say what must be read for a plan: what was looked up, else sealed spans, then runs whose place is in memory."""
    log, offset, end_offset = plan.log, plan.offset, plan.end_offset
    wanted = max(plan.max_bytes, 1)
    known = log.store.context.read_ahead.extents_for(plan)
    if known:
        for extent in known:
            if wanted <= 0 or extent.entry.base_offset >= end_offset:
                break
            work.add_extent(extent)
            wanted = wanted_after(wanted, extent.entry, offset)
    else:
        spans, wanted = spans_from(log, offset, end_offset, wanted)
        work.add_spans(spans)
        for extent in unsealed_extents(log, offset, end_offset, wanted):
            work.add_extent(extent)
    work.prepare(log.read_hint, plan.needed_bytes)


async def read_batches(log: PartitionLog, offset: int, end_offset: int) -> tuple[IOBuf, int]:
    """Read on from an offset, up to about 1 MiB: (whole batches, the offset that follows them).

    For what walks through a log; the first batch is there whatever its size. CorruptLogError where the log is damaged.
    """
    plan = log.plan_read(offset, max_bytes=_SCAN_BYTES, end_offset=end_offset, min_one_batch=True)
    await read([plan])
    if plan.error is not None:
        raise plan.error
    assert plan.records is not None
    if plan.records.size_bytes == 0 and plan.next_offset == offset:
        plan.next_offset = plan.end_offset
    if plan.next_offset <= offset:
        raise CorruptLogError(f"{log}: no progress at offset {offset}")
    return plan.records, plan.next_offset
