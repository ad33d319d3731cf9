"""A flipped bit at rest: whatever is still read was there once, before and after a cleaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.simulation.storage.batches import parse
from ottla.simulation.storage.engine import SimulatedDisk, StorageError, read
from ottla.simulation.storage.tracked import TrackedLog

if TYPE_CHECKING:
    from ottla.simulation.storage.state import SimulationState

__all__ = ["flip_a_bit", "read_what_is_left"]


def flip_a_bit(simulation: SimulationState, folder: str) -> bool:
    """Damage some file; False if there is none."""
    disk = simulation.disk
    files = [path for path in _files_in(disk, folder) if disk.size_of(path)]
    if not files:
        return False
    path = simulation.rng.choice(files)
    simulation.note(f"bit {disk.flip_bit(path)} of {path} flipped")
    return True


async def read_what_is_left(simulation: SimulationState) -> None:
    """Less may be found, but nothing that was never there."""
    for _ in range(2):
        for tracked in simulation.logs.values():
            await _read(simulation, tracked)
        await simulation.manager.clean()


async def _read(simulation: SimulationState, tracked: TrackedLog) -> None:
    log = tracked.log
    offset = 0
    while True:
        offset = max(offset, log.log_start_offset)
        if offset >= log.flushed_end_offset:
            return
        plan = log.plan_read(offset, max_bytes=1, end_offset=log.flushed_end_offset, min_one_batch=True)
        await read([plan])
        if plan.error is not None:
            simulation.check(isinstance(plan.error, StorageError), f"a read of {log} failed with {plan.error!r}")
            offset += 1
            continue
        assert plan.records is not None
        for batch in parse(plan.records.to_bytes()):
            for record in batch.records:
                simulation.check(record in simulation.ever[tracked.key], f"{record} of {tracked} never was")
        plan.release()
        offset = max(plan.next_offset, offset + 1)


def _files_in(disk: SimulatedDisk, folder: str) -> list[str]:
    paths = [f"{folder}/{name}" for name in disk.listdir(folder)]
    return [each for path in paths for each in (_files_in(disk, path) if disk.is_directory(path) else [path])]
