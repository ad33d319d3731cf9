"""Appending what another broker has answered: the same for a follower and for a mirror."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.replica.following.whole_batches import pieces
from ottla.storage.errors import UnexpectedAppendOffsetError

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.runtime.time_slice import TimeSlice
    from ottla.storage.clock import Clock

__all__ = ["append_copied"]


async def append_copied(
    partition: Partition,
    leader_epoch: int,
    records: memoryview,
    *,
    clock: Clock,
    time_slice: TimeSlice,
    count: Callable[[int], None],
) -> None:
    """Append whole batches, a few at a time, and `count` the bytes of each few. Raises NotLeaderError or StorageError.

    If the other log begins within a batch, so will this one: an empty log begins anew with the whole batch, and the
    caller moves its start forward. (Kafka does so in Partition.appendRecordsToFollowerOrFutureReplica.)
    """
    log = partition.log
    for piece in pieces(records):
        if not log.has_room:
            await log.wait_for_room()
        try:
            partition.append_as_follower(piece, leader_epoch, clock.time_ms())
        except UnexpectedAppendOffsetError as error:
            if log.log_start_offset < log.log_end_offset:
                raise
            await partition.start_anew_at(error.base_offset, leader_epoch)
            partition.append_as_follower(piece, leader_epoch, clock.time_ms())
        count(len(piece))
        if time_slice.is_over:
            await time_slice.maybe_yield()
