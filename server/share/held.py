"""Records that members of a share group hold, and that will be redelivered: only the partitions' leaders know them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.share.state import DeliveryState
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.server.share.partition import SharePartition


class PartitionInFlight(NamedTuple):
    """The records of a partition that a share group has begun with and that are not over."""

    topic: str
    partition: int
    held: dict[str, int]
    """How many records each member has now."""
    again: int
    """How many were given back, or whose lock has ended: they are to be delivered again."""
    most_deliveries: int
    """How often one of them was delivered."""
    dead: int
    """How many are on their way to the dead-letter queue."""


async def in_flight(led: Iterable[SharePartition] | None, group_id: str) -> list[PartitionInFlight]:
    """The partitions of `led`, which this node leads, that members of the group have fetched from."""
    time_slice = TimeSlice()
    found = []
    for share in [share for share in led or () if share.key.group_id == group_id and share.is_active]:
        held: dict[str, int] = {}
        again = most = dead = 0
        for run in list(share.in_flight.runs()):
            if run.state is DeliveryState.ACQUIRED and run.lock is not None:
                held[run.lock.member_id] = held.get(run.lock.member_id, 0) + run.count
            elif run.is_available and run.delivery_count:
                again += run.count
            elif run.state is DeliveryState.ARCHIVING:
                dead += run.count
            if not run.is_over:
                most = max(most, run.delivery_count)
            await time_slice.maybe_yield()
        found.append(PartitionInFlight(share.partition.topic, share.partition.index, held, again, most, dead))
    return found


def held_by_member(partitions: Iterable[PartitionInFlight]) -> dict[str, int]:
    """How many records each member has of all these partitions."""
    total: Counter[str] = Counter()
    for each in partitions:
        total.update(each.held)
    return dict(total)
