"""At the end of a life: nothing is held that nobody needs, and the files are sound and hold their own logs only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.simulation.storage.engine import check_node, partitions_on_disk, what_is_held

if TYPE_CHECKING:
    from ottla.simulation.storage.state import SimulationState

__all__ = ["check_files", "check_nothing_held"]

# Timers of what was deleted have rung, ranges that were read ahead are given back.
_SETTLED_S = 20.0


async def check_nothing_held(simulation: SimulationState) -> None:
    """When no log is left, nothing of any log is: no memory, descriptor, task or file."""
    if simulation.logs or simulation.may_fail:
        return
    await trio.sleep(_SETTLED_S)
    if simulation.may_fail:
        return
    for name, count in what_is_held(simulation.manager).items():
        simulation.check(count == 0, f"after everything was deleted there are still {name}: {count}")
    lent, handles = simulation.memory.lent, simulation.disk.open_handles
    simulation.check(lent == 0, f"after everything was deleted {lent} fragments are still held")
    simulation.check(handles == 1, f"after everything was deleted {handles} files are open, the lock's among them")


def check_files(simulation: SimulationState, node_folder: str) -> None:
    """The process has stopped properly."""
    disk, check = simulation.disk, simulation.check
    check(disk.open_handles == 0, f"{disk.open_handles} files are left open")
    check(not disk.misdirected, f"operations met another file than they were meant for: {disk.misdirected}")
    in_use = simulation.manager.context.pool.counters.in_use
    check(in_use == 0, f"{in_use} pooled fragments were not given back")
    check(simulation.memory.lent == 0, f"{simulation.memory.lent} fragments were not given back")
    report = check_node(disk, node_folder)
    damage = [finding for finding in report.findings if finding.severity == "error"]
    check(not damage, f"the files are damaged: {damage}")
    for directory, topic_id, partition in partitions_on_disk(disk, node_folder):
        tracked = simulation.logs.get((topic_id, partition))
        check(
            tracked is not None or (topic_id, partition) in simulation.half_deleted,
            f"{directory} holds records of {topic_id}-{partition}, which does not exist",
        )
