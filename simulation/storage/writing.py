"""Producers, transaction markers, and what a follower takes over from its leader."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ottla.simulation.storage.batches import build
from ottla.simulation.storage.engine import AppendOrigin
from ottla.simulation.storage.model import Batch, Row
from ottla.simulation.storage.tracked import TrackedLog

if TYPE_CHECKING:
    from ottla.simulation.storage.state import SimulationState

__all__ = ["append", "append_as_follower", "append_many", "end_transaction"]

_IDEMPOTENT = 7
_TRANSACTIONAL = (21, 22)
_KEYS = 4
_MANY = 30


async def append(simulation: SimulationState, tracked: TrackedLog) -> None:
    """A producer sends one batch to the leader."""
    if await _has_room(tracked):
        _take(simulation, tracked, _new_batch(simulation, tracked))


async def append_many(simulation: SimulationState, tracked: TrackedLog) -> None:
    """Batches come faster than they are written."""
    for _ in range(simulation.rng.randint(2, _MANY)):
        if not await _has_room(tracked):
            return
        _take(simulation, tracked, _new_batch(simulation, tracked))


async def end_transaction(simulation: SimulationState, tracked: TrackedLog) -> None:
    """Write a marker; sometimes there is no transaction that it would end."""
    if not await _has_room(tracked):
        return
    marker = _new_marker(simulation, tracked, tracked.model.log_end)
    if tracked.is_follower:
        _take_over(simulation, tracked, [marker])
    else:
        _take(simulation, tracked, marker)


async def append_as_follower(simulation: SimulationState, tracked: TrackedLog) -> None:
    """A leader's batches, numbered by it; where it has compacted its log some offsets are missing."""
    if not await _has_room(tracked):
        return
    rng = simulation.rng
    batches: list[Batch] = []
    end = tracked.model.log_end
    sequences = _sequences(tracked)
    for _ in range(rng.choice((1, 1, 3))):
        # A log that begins with a gap begins after it when it is recovered without a checkpoint.
        if end > 0 and rng.random() < 0.1:
            end += rng.randint(1, 5)
        batch = _new_batch(simulation, tracked, base_offset=end, sequences=sequences)
        batches.append(batch)
        end = batch.last_offset + 1
    _take_over(simulation, tracked, batches)


async def _has_room(tracked: TrackedLog) -> bool:
    """Wait until the log accepts appends; False if nobody may append to it any longer."""
    if tracked.is_writable and not tracked.log.has_room:
        await tracked.log.wait_for_room()
    return tracked.is_writable


def _rows(simulation: SimulationState, tracked: TrackedLog, rng: Random) -> tuple[Row, ...]:
    rows: list[Row] = []
    for _ in range(rng.choice((1, 1, 2, 5))):
        value = b"%s%d:" % (tracked.value_prefix, simulation.next_value) + b"x" * rng.choice((0, 10, 300))
        simulation.next_value += 1
        rows.append((b"k%d" % rng.randrange(_KEYS), None if rng.random() < 0.1 else value))
    return tuple(rows)


def _sequences(tracked: TrackedLog) -> dict[int, int]:
    """The next sequence of each producer that the log knows."""
    return {entry.producer_id: entry.last_sequence + 1 for entry in tracked.log.active_producers()}


def _new_batch(
    simulation: SimulationState,
    tracked: TrackedLog,
    *,
    base_offset: int | None = None,
    sequences: dict[int, int] | None = None,
) -> Batch:
    rng = simulation.rng
    rows = _rows(simulation, tracked, rng)
    choice = rng.random()
    producer_id = -1 if choice > 0.45 else _IDEMPOTENT if choice > 0.3 else rng.choice(_TRANSACTIONAL)
    sequence = -1
    if producer_id >= 0:
        sequences = _sequences(tracked) if sequences is None else sequences
        sequence = sequences.get(producer_id, 0)
        sequences[producer_id] = sequence + len(rows)
    return Batch(
        tracked.model.log_end if base_offset is None else base_offset,
        rows,
        simulation.epoch,
        producer_id,
        sequence,
        is_transactional=producer_id in _TRANSACTIONAL,
        timestamp_ms=simulation.clock.time_ms(),
    )


def _new_marker(simulation: SimulationState, tracked: TrackedLog, offset: int) -> Batch:
    return Batch(
        offset,
        (),
        simulation.epoch,
        simulation.rng.choice(_TRANSACTIONAL),
        is_transactional=True,
        commits=simulation.rng.random() < 0.5,
        timestamp_ms=simulation.clock.time_ms(),
    )


def _take(simulation: SimulationState, tracked: TrackedLog, batch: Batch) -> None:
    """The leader appends one batch."""
    fragment = simulation.memory.lend(build(batch, is_numbered=False))
    origin = AppendOrigin.CLIENT if batch.commits is None else AppendOrigin.COORDINATOR
    try:
        info = tracked.log.append_as_leader(
            fragment.memory,
            fragment,
            leader_epoch=simulation.epoch,
            origin=origin,
            now_ms=simulation.clock.time_ms(),
        )
        _appended(simulation, tracked, batch)
    finally:
        fragment.release()
    simulation.check(
        (info.base_offset, info.last_offset) == (batch.base_offset, batch.last_offset),
        f"{tracked}: appended at {info.base_offset}-{info.last_offset}, not {batch.base_offset}-{batch.last_offset}",
    )


def _take_over(simulation: SimulationState, tracked: TrackedLog, batches: list[Batch]) -> None:
    """A follower appends what its leader sent."""
    fragment = simulation.memory.lend(b"".join(build(batch, is_numbered=True) for batch in batches))
    try:
        tracked.log.append_as_follower(fragment.memory, fragment, now_ms=simulation.clock.time_ms())
        for batch in batches:
            _appended(simulation, tracked, batch)
    finally:
        fragment.release()


def _appended(simulation: SimulationState, tracked: TrackedLog, batch: Batch) -> None:
    tracked.appended(batch)
    simulation.ever[tracked.key].update(batch.records())
    kind = "append" if batch.commits is None else "commit" if batch.commits else "abort"
    simulation.note(f"{kind} {tracked}: {batch.base_offset}-{batch.last_offset} by {batch.producer_id}")
