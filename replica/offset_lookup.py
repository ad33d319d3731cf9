"""Finding offsets of a partition by time or by role (ListOffsets; Kafka's `Partition.fetchOffsetForTimestamp`)."""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from ottla.replica.errors import OffsetNotAvailableError
from ottla.replica.partition import NO_EPOCH, Isolation, Partition
from ottla.runtime.stages import Stages

NO_TIMESTAMP: Final = -1
NO_OFFSET: Final = -1


class OffsetSpec(IntEnum):
    """What may be asked for in place of a timestamp; nothing is tiered here, so the last two find no offset."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


# Compared as plain numbers, which costs a fraction of comparing with an enumeration's members.
_LATEST: Final = int(OffsetSpec.LATEST)
_MAX_TIMESTAMP: Final = int(OffsetSpec.MAX_TIMESTAMP)
_AT_THE_START: Final = (int(OffsetSpec.EARLIEST), int(OffsetSpec.EARLIEST_LOCAL))
_TIERED: Final = (int(OffsetSpec.LATEST_TIERED), int(OffsetSpec.EARLIEST_PENDING_UPLOAD))


class FoundOffset(NamedTuple):
    """An offset, the timestamp and the leader epoch of its record; -1 for what there is not."""

    timestamp_ms: int = NO_TIMESTAMP
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH


NOTHING_FOUND: Final = FoundOffset()


def find_offset(
    partition: Partition,
    timestamp_ms: int,
    *,
    isolation: Isolation,
    current_leader_epoch: int = NO_EPOCH,
    may_read_from_follower: bool = False,
) -> Stages[FoundOffset]:
    """The first visible record at or after a timestamp, or what an `OffsetSpec` names; `NOTHING_FOUND` if none is.

    Only a search by time has anything to wait for.

    Raises ReplicaError or StorageError; OffsetNotAvailableError while a new leader's high watermark lags behind the
    start of its epoch (KIP-207), so that the latest offset never goes back.
    """
    known = known_offset(partition, timestamp_ms, isolation, current_leader_epoch, may_read_from_follower)
    if known is not None:
        return known
    log = partition.log
    visible_end = partition.visible_end(isolation)
    if timestamp_ms == _MAX_TIMESTAMP:
        found = yield log.max_timestamp_offset
    else:
        found = yield partial(log.offset_for_timestamp, timestamp_ms)
    if found is None or found.offset >= visible_end:
        _require_settled(partition, visible_end)
        return NOTHING_FOUND
    return FoundOffset(found.timestamp_ms, found.offset, found.leader_epoch)


def known_offset(
    partition: Partition,
    timestamp_ms: int,
    isolation: Isolation,
    current_leader_epoch: int,
    may_read_from_follower: bool,
) -> FoundOffset | None:
    """`find_offset` as far as nothing has to be searched for, None for the rest. Raises as that does."""
    partition.require_readable(current_leader_epoch, from_follower=may_read_from_follower)
    if timestamp_ms == _LATEST:
        visible_end = partition.visible_end(isolation)
        _require_settled(partition, visible_end)
        return FoundOffset(NO_TIMESTAMP, visible_end, partition.leader_epoch)
    if timestamp_ms in _AT_THE_START:
        start = partition.log.log_start_offset
        return FoundOffset(NO_TIMESTAMP, start, partition.epoch_at(start))
    return NOTHING_FOUND if timestamp_ms in _TIERED else None


def _require_settled(partition: Partition, visible_end: int) -> None:
    # The last stable offset may lie before the epoch's start for as long as a transaction is open.
    settled_end = max(visible_end, partition.log.high_watermark)
    if partition.is_leader and settled_end < partition.epoch_start_offset:
        raise OffsetNotAvailableError(f"the high watermark of {partition.topic}-{partition.index} is not settled yet")
