"""What takes records away: truncations, new log starts, deletions. Each takes its time, and others go on meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.simulation.storage.history import Event
from ottla.simulation.storage.model import LogModel
from ottla.simulation.storage.reading import note_last_start, observe
from ottla.simulation.storage.tracked import TrackedLog

if TYPE_CHECKING:
    from ottla.simulation.storage.state import SimulationState

__all__ = ["delete", "move_start", "restart_at", "truncate"]


async def truncate(simulation: SimulationState, tracked: TrackedLog, *, beyond: int | None = None) -> None:
    """A follower takes back what its leader does not have; perhaps from one of the next batches beyond an offset."""
    observe(simulation, tracked)
    if not tracked.is_writable or tracked.moves_under_way:
        return
    bounds = [
        batch.base_offset for batch in tracked.model.live_batches() if batch.base_offset >= tracked.model.log_start
    ]
    if tracked.was_compacted:
        # What is below the high watermark is never truncated: compaction relies on that.
        bounds = [offset for offset in bounds if offset >= tracked.log.high_watermark]
    elif tracked.model.log_start and simulation.rng.random() < 0.1:
        bounds = [simulation.rng.randrange(tracked.model.log_start)]
    if beyond is not None:
        bounds = [offset for offset in bounds if offset > beyond][:2] or bounds
    if bounds:
        offset = simulation.rng.choice(bounds)
        simulation.note(f"truncates {tracked} to {offset}")
        await _hold(simulation, tracked, lambda model: model.truncate(offset), tracked.log.truncate_to(offset))
        simulation.note(f"truncated {tracked} to {offset}")


async def restart_at(simulation: SimulationState, tracked: TrackedLog) -> None:
    """A follower whose leader's log begins beyond its end."""
    observe(simulation, tracked)
    if not tracked.is_writable or tracked.moves_under_way:
        return
    offset = tracked.model.log_end + simulation.rng.randint(0, 10)
    simulation.note(f"restarts {tracked} at {offset}")
    work = tracked.log.truncate_fully_and_start_at(offset)
    await _hold(simulation, tracked, lambda model: model.restart_at(offset), work)
    simulation.note(f"restarted {tracked} at {offset}")


async def _hold(
    simulation: SimulationState, tracked: TrackedLog, change: Callable[[LogModel], None], work: Awaitable[None]
) -> None:
    """Nobody appends while this is done."""
    retention = _begin_retention(tracked)
    event = tracked.begin(change)
    simulation.cut.add(tracked.key)
    tracked.is_held = tracked.was_cut = True
    tracked.forget_watermarks()
    try:
        await work
    except BaseException:
        tracked.is_lost = True
        raise
    if not tracked.is_deleting:
        tracked.finish(event)
        tracked.history.finish(retention)
        # Producers were read again from the log's start, which retention may have moved by then.
        tracked.model.sure_from = max(tracked.model.sure_from, tracked.log.log_start_offset)
        tracked.forget_watermarks()
        tracked.is_held = False


def _begin_retention(tracked: TrackedLog) -> Event:
    """Before a change gets its turn retention may move the log's start; then the change may be lost, not the move."""
    model, config = tracked.model, tracked.topic.config
    ends = [batch.last_offset + 1 for batch in reversed(model.live_batches())] if config.delete else []
    variants = tuple(partial(_retain, offset=offset) for offset in ends)
    return tracked.history.begin(tracked.key, _leave, variants=variants)


def _retain(model: LogModel, offset: int) -> None:
    model.move_start(min(offset, model.log_end))


def _leave(model: LogModel) -> None:
    """Nothing has happened."""


async def move_start(simulation: SimulationState, tracked: TrackedLog) -> None:
    """DeleteRecords, while others write and read."""
    observe(simulation, tracked)
    if not tracked.is_writable or tracked.moves_under_way:
        return
    log = tracked.log
    log.advance_high_watermark(log.flushed_end_offset)
    if log.high_watermark <= log.log_start_offset:
        return
    offset = simulation.rng.randint(log.log_start_offset, log.high_watermark)
    is_new = offset > log.log_start_offset
    simulation.note(f"moves the start of {tracked} to {offset}")
    event = tracked.begin(lambda model: model.move_start(offset))
    tracked.moves_under_way += 1
    try:
        await log.advance_log_start_offset(offset)
    except BaseException:
        tracked.is_lost = True
        raise
    tracked.moves_under_way -= 1
    if not tracked.is_deleting:
        # Retention may have been there first.
        tracked.finish(event, is_written=is_new and not tracked.topic.config.delete)
        simulation.note(f"moved the start of {tracked} to {offset}")


async def delete(simulation: SimulationState, tracked: TrackedLog, *, whole_topic: bool) -> None:
    """Delete a log, or all of its topic's in one call."""
    chosen = [
        each
        for each in simulation.logs.values()
        if each.is_usable and (each is tracked or (whole_topic and each.topic is tracked.topic))
    ]
    if not chosen:
        return
    for each in chosen:
        # What retention did before must be known, as nobody looks at the log again.
        observe(simulation, each)
        note_last_start(simulation, each)
    events = [each.begin(LogModel.delete) for each in chosen]
    for each in chosen:
        each.is_deleting = True
        simulation.half_deleted.add(each.key)
    simulation.note(f"deletes {', '.join(map(str, chosen))}")
    await simulation.manager.delete_logs(tracked.topic.topic_id, [each.partition for each in chosen])
    for each, event in zip(chosen, events, strict=True):
        if not simulation.may_fail:
            # A store that has stopped cannot write that a log was deleted.
            each.history.finish(event, is_written=True)
            simulation.half_deleted.discard(each.key)
            simulation.deleted.add(each.key)
        if simulation.logs.get(each.key) is each:
            del simulation.logs[each.key]
    simulation.note(f"deleted {', '.join(map(str, chosen))}")
