"""Reading: one call which fills all plans of a fetch, in stages that need no task where nothing has to be waited for.

What is flushed and still in memory was shared when the plan was made. What the page cache holds is read on the event
loop (`RWF_NOWAIT`), in small steps, if its place is known; for all the rest of a fetch there is one worker-thread call.
Where a log is read in order, the page cache is asked for what comes next (`read_ahead`), and the next range is read
while the last one is on its way to the client (`prefetch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import trio

from ottla.runtime.stages import Stages, finish
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.disk.passing import RETRY_SECONDS, is_out_of_descriptors
from ottla.storage.errors import CorruptLogError, LogClosedError
from ottla.storage.memory.iobuf import IOBuf
from ottla.storage.reading.extents import spans_from, unsealed_extents, wanted_after
from ottla.storage.reading.file_read import STEP_BYTES, FileRead
from ottla.storage.reading.locate import ensure_spans
from ottla.storage.reading.plan import ReadableLog, ReadPlan
from ottla.storage.reading.prefetch import Prefetch
from ottla.storage.reading.read_ahead import ReadAhead
from ottla.storage.store.context import StorageContext

__all__ = ["Reader"]

# Memory for a large first batch, a rebuilt index, exchanged segments: each asks for one more attempt.
_MAX_ATTEMPTS = 8
# While there are no descriptors.
_MAX_WAITS = 100
_SCAN_BYTES = 1_048_576
# A small read takes as long as copying and checking this much.
_LEAST_STEP_BYTES = 16_384


class Reader:
    """Reads the logs of a node. The log manager owns it, and it owns what was looked up and read ahead."""

    def __init__(self, context: StorageContext) -> None:
        self._context = context
        self.read_ahead = ReadAhead(context)
        self.prefetch = Prefetch(context, self.fill)
        self._may_name_files = False

    def forget(self, log: ReadableLog) -> None:
        """What the log's files hold is no longer true, or not wanted."""
        self.read_ahead.forget(log)
        self.prefetch.forget(log)

    def read(self, plans: Sequence[ReadPlan]) -> Stages[None]:
        """Fill the `records` of every plan: from what was read ahead, else as `fill` does."""
        plans = [plan for plan in plans if not plan.is_complete]
        if plans:
            if len(self.prefetch):
                for plan in plans:
                    yield from self.prefetch.take(plan)
            yield from self.fill(plans)

    def fill(self, plans: Sequence[ReadPlan]) -> Stages[None]:
        """Fill the `records` of every plan: from memory and the page cache at once, all else in one thread call."""
        plans = [plan for plan in plans if not plan.is_complete]
        waits = _MAX_WAITS
        attempts = _MAX_ATTEMPTS
        while attempts and plans:
            attempts -= 1
            try:
                yield from self.read_ahead.settle(plans)
                plans = yield from _locate_sealed(plans)
                plans = yield from self._read_files(plans)
            except OSError as error:
                if not is_out_of_descriptors(error) or not waits:
                    for plan in plans:
                        plan.fail(error)
                    return
                # It passes: other reads and connections give some back.
                waits -= 1
                attempts += 1
                self._context.shed_descriptors()
                yield partial(trio.sleep, RETRY_SECONDS)
                plans = [plan for plan in plans if not plan.is_complete]
        for plan in plans:
            plan.fail(CorruptLogError(f"{plan.log}: cannot be read at offset {plan.offset}"))

    async def read_batches(self, log: ReadableLog, offset: int, end_offset: int) -> tuple[IOBuf, int]:
        """Read on from an offset, up to about 1 MiB: (whole batches, the offset that follows them).

        For what walks through a log; the first batch is there whatever its size. CorruptLogError where the log is
        damaged, LogClosedError if it was deleted.
        """
        plan = log.plan_read(offset, max_bytes=_SCAN_BYTES, end_offset=end_offset, min_one_batch=True)
        await finish(self.read([plan]))
        if plan.error is not None:
            raise plan.error
        assert plan.records is not None
        if plan.records.size_bytes == 0 and plan.next_offset == offset:
            plan.pass_gap()
        if plan.next_offset <= offset:
            raise CorruptLogError(f"{log}: no progress at offset {offset}")
        return plan.records, plan.next_offset

    # One attempt.

    def _read_files(self, plans: Sequence[ReadPlan]) -> Stages[list[ReadPlan]]:
        """Read what the plans need; returns those which must be read again, with more memory for a large batch."""
        context = self._context
        again: list[ReadPlan] = []
        followed: list[ReadPlan] = []
        reads: dict[ReadPlan, FileRead] = {}
        try:
            time_slice = TimeSlice()
            for plan in plans:
                if time_slice.is_over:
                    yield time_slice.maybe_yield
                if _lacks_spans(plan):
                    # Segments were exchanged meanwhile: what is known of their files is no longer true.
                    again.append(plan)
                    continue
                plan.renew()
                work = self._begin(plan)
                if work is not None:
                    reads[plan] = work
                    self._prepare(work, plan)
            cold = yield from _read_inline(context, list(reads.values()))
            for work in cold:
                work.go_cold()
            if cold:
                yield partial(context.offload, _run_all, cold)
            _check_descriptors(reads.values())
            for plan, work in reads.items():
                if self._was_misled(plan, work) or _finish(context, plan, work):
                    again.append(plan)
                elif plan.error is None and self.read_ahead.on_read(plan, was_cold=work.is_cold):
                    followed.append(plan)
            if followed:
                self.read_ahead.look(followed)
        finally:
            for work in reads.values():
                work.close()
        return again

    def _was_misled(self, plan: ReadPlan, work: FileRead) -> bool:
        """Whether what was looked up ends in a gap, so that what follows was not read; it is forgotten then."""
        if not work.is_void or not self.read_ahead.extents_for(plan):
            return False
        self.read_ahead.forget(plan.log)
        return True

    def _begin(self, plan: ReadPlan) -> FileRead | None:
        if plan.names_files and not self._may_name_files and self._context.is_running:
            self._may_name_files = True
            self._context.spawn(partial(self._context.offload, self._context.disk.prepare_sending))
        try:
            return FileRead(
                self._context,
                plan.log.store.files,
                plan.offset,
                plan.end_offset,
                plan.max_bytes,
                min_one_batch=plan.min_one_batch,
                names_files=plan.names_files,
            )
        except LogClosedError as error:
            plan.fail(error)
            return None

    def _prepare(self, work: FileRead, plan: ReadPlan) -> None:
        """Say what must be read: what was looked up, else sealed spans, then runs whose place is in memory."""
        try:
            self._say_what(work, plan)
        except OSError as error:
            work.fail(error)

    def _say_what(self, work: FileRead, plan: ReadPlan) -> None:
        places, offset, end_offset = plan.log.places, plan.offset, plan.end_offset
        wanted = max(plan.max_bytes, 1)
        known = self.read_ahead.extents_for(plan)
        if known:
            for extent in known:
                if wanted <= 0 or extent.entry.base_offset >= end_offset:
                    break
                work.add_extent(extent)
                wanted = wanted_after(wanted, extent.entry, offset)
        else:
            spans, wanted = spans_from(places, offset, end_offset, wanted)
            work.add_spans(spans)
            for extent in unsealed_extents(places, offset, end_offset, wanted):
                work.add_extent(extent)
        work.prepare(places.hint, plan.needed_bytes)


def _locate_sealed(plans: Sequence[ReadPlan]) -> Stages[list[ReadPlan]]:
    """Derive the spans of those logs whose plan begins before their runs in memory; returns what can be read.

    Looks again after each wait: meanwhile a segment may have been sealed under another plan of the same fetch, or a
    store closed.
    """
    while True:
        for plan in plans:
            if not plan.log.store.gate.is_open:
                plan.fail(LogClosedError(f"{plan.log} was closed or deleted"))
        plans = [plan for plan in plans if plan.error is None]
        lacking = [plan for plan in plans if _lacks_spans(plan)]
        if not lacking:
            return list(plans)
        try:
            yield partial(ensure_spans, [plan.log for plan in lacking])
        except LogClosedError:
            continue
        except OSError as error:
            if is_out_of_descriptors(error):
                raise
            # Which log it was shows when each is looked for alone; the others are served.
            for plan in lacking:
                try:
                    yield partial(ensure_spans, [plan.log])
                except (OSError, LogClosedError) as own:
                    plan.fail(own)


def _lacks_spans(plan: ReadPlan) -> bool:
    return not plan.log.places.are_known_from(plan.offset)


def _read_inline(context: StorageContext, reads: Sequence[FileRead]) -> Stages[list[FileRead]]:
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
                yield trio.lowlevel.checkpoint
                held_bytes = 0
            read_bytes = work.step()
            if not read_bytes and not work.is_done:
                cold.append(work)
                break
            held_bytes += max(read_bytes, _LEAST_STEP_BYTES)
    return cold


def _check_descriptors(reads: Iterable[FileRead]) -> None:
    """Raise what says that the process has no descriptors left: then all is read again."""
    for work in reads:
        if work.error is not None and is_out_of_descriptors(work.error):
            raise work.error


def _finish(context: StorageContext, plan: ReadPlan, work: FileRead) -> bool:
    """Take over what was read; True if the plan must be read again."""
    places = plan.log.places
    if work.damage is not None:
        damage = work.damage
        context.damage.found(damage.path, damage.position, f"{plan.log}: {damage}")
    if work.error is not None:
        plan.fail(work.error)
    elif work.damaged_index is not None:
        context.fd_cache.drop(work.damaged_index.index_path)
        places.unknown()
        return True
    elif work.needed_bytes:
        plan.need(work.needed_bytes)
        return True
    elif not plan.is_current:
        # Cleaned meanwhile: what was read may still hold what the index does not know any more.
        return True
    else:
        places.hint_at(work.hint)
        plan.complete_from_files(work.take_records(), work.next_offset, work.read_bytes)
    return False


def _run_all(reads: Sequence[FileRead]) -> None:
    for work in reads:
        work.run()
