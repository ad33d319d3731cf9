"""Readers, and whether what they see is what the model allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from ottla.kproto.errors import ProtocolError
from ottla.simulation.storage.batches import ReadBatch, committed, parse
from ottla.simulation.storage.engine import AbortedTransaction, ReadPlan, StorageError, cleaned_end, read
from ottla.simulation.storage.model import Seen
from ottla.simulation.storage.tracked import TrackedLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.simulation.storage.state import SimulationState

__all__ = ["fetch", "note_last_start", "observe", "read_everything"]


@dataclass(slots=True)
class _Asked:
    """One partition of a fetch, and what was known of it when the fetch was planned."""

    tracked: TrackedLog
    plan: ReadPlan
    is_committed: bool
    stable_offset: int
    begun: int
    was_steady: bool
    must_be_gone: set[int]


def observe(simulation: SimulationState, tracked: TrackedLog) -> None:
    """Compare a log's public state with the model; retention may have moved its start since the last look."""
    log, model = tracked.log, tracked.model
    if not tracked.is_usable:
        return
    if tracked.moves_under_way == 0 and log.log_start_offset > model.log_start and not tracked.is_held:
        _retained(simulation, tracked)
    if not tracked.is_held:
        tracked.seen_at = tracked.history.now
    tracked.acknowledge()
    if not tracked.is_steady:
        return
    check = simulation.check
    check(log.log_start_offset == model.log_start, f"{tracked} starts at {log.log_start_offset}, not {model.log_start}")
    check(log.log_end_offset == model.log_end, f"{tracked} ends at {log.log_end_offset}, not {model.log_end}")
    check(log.flushed_end_offset <= log.log_end_offset, f"{tracked}: flushed beyond its end")
    check(log.high_watermark >= tracked.high_watermark, f"{tracked}: the high watermark went back")
    least, most = model.stable_bounds(log.high_watermark)
    stable = log.last_stable_offset
    check(least <= stable <= most, f"{tracked}: last stable offset {stable}, not {least} to {most}")
    check(stable >= tracked.last_stable_offset, f"{tracked}: the last stable offset went back to {stable}")
    tracked.high_watermark, tracked.last_stable_offset = log.high_watermark, stable


def _retained(simulation: SimulationState, tracked: TrackedLog) -> None:
    log, config, start = tracked.log, tracked.topic.config, tracked.log.log_start_offset
    simulation.note(f"{tracked} was retained from {start} on")
    may = config.delete and (config.retention_ms >= 0 or config.retention_bytes >= 0)
    simulation.check(may, f"{tracked}: the log start moved to {start} by itself")
    if not tracked.was_cut:
        simulation.check(start <= log.high_watermark, f"{tracked}: retained beyond its watermark")
    if not tracked.was_compacted and not tracked.was_cut:
        now_ms = simulation.clock.time_ms()
        left_bytes = sum(batch.size_bytes for batch in tracked.model.batches if batch.base_offset >= start)
        for batch in reversed(tracked.model.live_batches()):
            if batch.last_offset < start:
                is_expired = 0 <= config.retention_ms < now_ms - batch.timestamp_ms
                is_surplus = 0 <= config.retention_bytes <= left_bytes
                simulation.check(
                    is_expired or is_surplus, f"{tracked}: the batch at {batch.base_offset} went too early"
                )
                left_bytes += batch.size_bytes
    event = tracked.begin(lambda model: model.move_start(start), since=tracked.seen_at)
    tracked.ended += 1
    event.change(tracked.model)
    tracked.history.finish(event)


def note_last_start(simulation: SimulationState, tracked: TrackedLog) -> None:
    """The process has ended: what retention did at the end may be on the disk."""
    start = tracked.log.log_start_offset
    if start > tracked.model.log_start:
        tracked.begin(lambda model: model.move_start(start), since=tracked.seen_at)


async def fetch(
    simulation: SimulationState,
    logs: Sequence[TrackedLog],
    *,
    max_bytes: int,
    is_committed: bool,
    goes_on: bool = False,
) -> None:
    """Read some logs in one fetch, as a consumer does, each from where its last read ended, or from anywhere."""
    rng = simulation.rng
    asked: list[_Asked] = []
    for tracked in logs:
        observe(simulation, tracked)
        log = tracked.log
        end = log.last_stable_offset if is_committed else rng.choice((log.high_watermark, log.flushed_end_offset))
        first, last = log.log_start_offset, max(log.log_start_offset, min(end, log.flushed_end_offset))
        offset = tracked.read_end
        if goes_on:
            offset = offset if first <= offset < last else first
        elif not first <= offset <= last or rng.random() < 0.3:
            offset = rng.choice((first, rng.randint(first, last)))
        plan = log.plan_read(offset, max_bytes=max_bytes, end_offset=end, min_one_batch=not asked)
        must_be_gone = tracked.model.removed(cleaned_end(log)) if tracked.was_compacted else set()
        asked.append(_Asked(tracked, plan, is_committed, end, tracked.begun, tracked.is_steady, must_be_gone))
    simulation.note(f"fetch {', '.join(f'{a.tracked}@{a.plan.offset}<{a.plan.end_offset}' for a in asked)}")
    try:
        await read([each.plan for each in asked])
        for each in asked:
            _check(simulation, each)
    finally:
        for each in asked:
            each.plan.release()
    for _ in range(rng.randint(0, 4)):
        await trio.lowlevel.checkpoint()


def _check(simulation: SimulationState, asked: _Asked) -> None:
    tracked, plan = asked.tracked, asked.plan
    if plan.error is not None:
        simulation.excuse(f"reading {tracked} at {plan.offset}", plan.error, tracked)
        return
    assert plan.records is not None
    content = plan.records.to_bytes()
    aborted: Sequence[AbortedTransaction] = ()
    if asked.is_committed and not tracked.log.is_closed:
        aborted = tracked.log.aborted_transactions(plan.offset, asked.stable_offset)
    try:
        batches = parse(content)
    except ProtocolError as error:
        simulation.fail(f"{tracked} at {plan.offset}: what was read is damaged: {error}")
        return
    found = [record for batch in batches for record in batch.records if record[0] >= plan.offset]
    if strange := [record for record in found if not tracked.belongs_here(record)]:
        simulation.fail(f"{tracked} at {plan.offset}: another log's records: {strange}")
    if strange := [record for record in found if record not in simulation.ever[tracked.key]]:
        simulation.fail(f"{tracked} at {plan.offset}: records that never were: {strange}")
    end = max(plan.next_offset, batches[-1].header.next_offset if batches else 0)
    tracked.read_end = end
    if asked.begun != tracked.begun or not asked.was_steady or not tracked.is_steady:
        return
    if tracked.log.log_start_offset != tracked.model.log_start:
        return  # by retention, since the last look
    where = f"{tracked} from {plan.offset} to {end}"
    _check_exactly(simulation, asked, where, end, len(content), batches, found)
    if asked.is_committed:
        _check_committed(simulation, asked, where, batches, aborted, found)


def _check_exactly(
    simulation: SimulationState,
    asked: _Asked,
    where: str,
    end: int,
    size_bytes: int,
    batches: list[ReadBatch],
    found: list[Seen],
) -> None:
    """Check a read during which only appends and compaction changed the log."""
    tracked, plan, model, check = asked.tracked, asked.plan, asked.tracked.model, simulation.check
    tombstones_go = tracked.topic.config.delete_retention_ms == 0
    wrong = model.misses(found, plan.offset, end, compacted=tracked.was_compacted, tombstones_go=tombstones_go)
    check(not wrong, f"{where}: {wrong}")
    stale = [record for record in found if record[0] in asked.must_be_gone]
    check(not stale, f"{where}: what compaction has removed is still visible: {stale}")
    check(end <= plan.end_offset or not batches, f"{where}: beyond the end that was asked for, {plan.end_offset}")
    is_one = len(batches) <= 1 and plan.min_one_batch
    check(size_bytes <= plan.max_bytes or is_one, f"{where}: {size_bytes} bytes, beyond {plan.max_bytes}")
    if not size_bytes and plan.min_one_batch:
        may_go = model.removable(tombstones_go=tombstones_go) if tracked.was_compacted else set()
        # A batch that reaches beyond the end is not read.
        ends = [batch.last_offset for batch in model.batches if batch.last_offset >= plan.offset]
        left = [r for r in model.records(plan.offset, plan.end_offset) if r[0] not in may_go]
        check(not left or ends[0] >= plan.end_offset, f"{where}: nothing was read of {left}")


def _check_committed(
    simulation: SimulationState,
    asked: _Asked,
    where: str,
    batches: list[ReadBatch],
    named: Sequence[AbortedTransaction],
    found: list[Seen],
) -> None:
    check, plan = simulation.check, asked.plan
    visible = {record for record in committed(batches, named) if record[0] >= plan.offset}
    aborted, undecided = asked.tracked.model.fates()
    wrong = sorted(record for record in visible if record[0] in aborted)
    check(not wrong, f"{where}, read_committed: aborted records are visible: {wrong}")
    wrong = sorted(record for record in visible if record[0] in undecided)
    check(not wrong, f"{where}, read_committed: undecided records are visible: {wrong}")
    hidden = [r for r in found if r not in visible and r[0] not in aborted and r[0] not in undecided]
    check(not hidden, f"{where}, read_committed: committed records are hidden: {hidden}")


async def read_everything(simulation: SimulationState, tracked: TrackedLog) -> list[Seen]:
    """All records of a log that nobody writes to; retention may move its start meanwhile."""
    found: list[Seen] = []
    log = tracked.log
    offset = 0
    while offset < log.flushed_end_offset:
        offset = max(offset, log.log_start_offset)
        plan = log.plan_read(offset, max_bytes=1000, end_offset=log.flushed_end_offset, min_one_batch=True)
        await read([plan])
        try:
            if plan.error is not None:
                if isinstance(plan.error, StorageError):
                    simulation.fail(f"{log} at {offset}: {plan.error!r}")
                raise plan.error
            assert plan.records is not None
            batches = parse(plan.records.to_bytes())
        finally:
            plan.release()
        found += [record for batch in batches for record in batch.records if record[0] >= offset]
        if plan.next_offset == offset:
            break
        offset = plan.next_offset
    return found
