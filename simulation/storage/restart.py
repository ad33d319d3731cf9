"""After a start: what the disk has kept is what the model says after some prefix of its history."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.simulation.storage.history import Key
from ottla.simulation.storage.model import LogModel, Seen
from ottla.simulation.storage.reading import read_everything
from ottla.simulation.storage.tracked import TrackedLog

if TYPE_CHECKING:
    from ottla.simulation.storage.state import SimulationState

__all__ = ["compare_after_start"]


async def compare_after_start(simulation: SimulationState) -> None:
    """Read everything, and find the prefix of each store's history that was kept."""
    found: dict[Key, list[Seen]] = {}
    for key, tracked in simulation.logs.items():
        found[key] = await read_everything(simulation, tracked)
        log = tracked.log
        simulation.check(log.flushed_end_offset == log.log_end_offset, f"{tracked}: something unflushed after a start")
    for name, history in simulation.stores.items():
        fits: dict[Key, Callable[[LogModel], str]] = {
            key: partial(_misfit, tracked, found[key])
            for key, tracked in simulation.logs.items()
            if tracked.history is history
        }
        models, wrong = history.settle(fits)
        simulation.check(models is not None, f"store {name}: {wrong}")
        assert models is not None
        for key, model in models.items():
            tracked = simulation.logs[key]
            tracked.model = model
            model.sure_from = model.log_start
            tracked.seen_at = history.now
            simulation.note(f"{tracked} is [{model.log_start}, {model.log_end})")
    simulation.epoch += 1


def _misfit(tracked: TrackedLog, found: list[Seen], model: LogModel) -> str:
    """How a log differs from this state of it; empty if it does not."""
    log = tracked.log
    if (tracked.opened_at_start, log.log_end_offset) != (model.log_start, model.log_end):
        return f"it is [{tracked.opened_at_start}, {log.log_end_offset}), not [{model.log_start}, {model.log_end})"
    model = model.copy()
    model.move_start(log.log_start_offset)
    found = [record for record in found if record[0] >= model.log_start]
    config = tracked.topic.config
    wrong = model.misses(
        found, 0, model.log_end, compacted=tracked.was_compacted, tombstones_go=config.delete_retention_ms == 0
    )
    if wrong:
        return wrong
    model.sure_from = model.log_start
    least, most = model.stable_bounds(log.high_watermark)
    if not least <= log.last_stable_offset <= most:
        return f"last stable offset {log.last_stable_offset}, not {least} to {most}"
    if model.live_batches() and log.latest_epoch != model.latest_epoch():
        return f"the last epoch is {log.latest_epoch}, not {model.latest_epoch()}"
    known = {entry.producer_id: entry.last_sequence for entry in log.active_producers()}
    for producer_id, sequence in model.last_sequences().items():
        if known.get(producer_id) != sequence:
            return f"producer {producer_id} is at {known.get(producer_id)}, not {sequence}"
    begun = {batches[0].producer_id for batches, marker_offset, _ in model.transactions() if marker_offset < 0}
    for entry in log.active_producers():
        if entry.in_transaction and entry.producer_id not in begun:
            return f"a transaction of {entry.producer_id} is open"
    return _wrong_transactions(tracked, found, model)


def _wrong_transactions(tracked: TrackedLog, found: list[Seen], model: LogModel) -> str:
    """How the index is wrong about records of decided transactions: whether they were aborted."""
    held = {record[0] for record in found}
    aborted = tracked.log.aborted_transactions(model.log_start, model.log_end)
    for batches, marker_offset, commits in model.transactions():
        if marker_offset < 0:
            continue
        for batch in batches:
            offsets = set(range(max(batch.base_offset, model.log_start), batch.last_offset + 1))
            if batch.base_offset < model.log_start or held.isdisjoint(offsets):
                continue
            is_named = any(
                each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset < each.last_offset
                for each in aborted
            )
            if is_named == commits:
                return f"the batch at {batch.base_offset}: committed is {commits}, named as aborted is {is_named}"
    return ""
