"""Reads all that there is in the end, and compares it with what clients did and saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from ottla.simulation.cluster.clients.consumer import Auditor

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["Logs", "audit"]

Logs = dict["Partition", dict[int, bytes]]
"""Values of records by their offsets."""


async def audit(world: ClientEnvironment, partitions: Sequence[Partition], *, patience_s: float) -> list[Logs]:
    """Nothing is wrong any more, and nobody writes: what partitions hold must be what the history promises.

    Returns what readers of uncommitted records see, and what those of committed records do.
    """
    auditors = [Auditor(world, f"auditor{kind}", partitions, is_committed=bool(kind)) for kind in range(2)]
    with trio.move_on_after(patience_s) as patience:
        async with trio.open_nursery() as nursery:
            for auditor in auditors:
                nursery.start_soon(auditor.run)
    if patience.cancelled_caught:
        world.fail(f"the partitions cannot be read to their end within {patience_s:g} s, and nothing is wrong")
    for partition in partitions:
        world.history.check_log(partition, auditors[0].records[partition])
    world.history.check_committed(auditors[1].records)
    return [auditor.records for auditor in auditors]
