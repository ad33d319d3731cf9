"""Finding offsets of a partition by time or by role (ListOffsets; Kafka's `Partition.fetchOffsetForTimestamp`)."""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.replica.errors import OffsetNotAvailableError
from ottla.replica.partition import NO_EPOCH, Isolation, Partition
from ottla.runtime.stages import Stages

if TYPE_CHECKING:
    from ottla.replica.tiered.remote_log import RemoteLog
    from ottla.storage.reading.search import TimestampOffset

NO_TIMESTAMP: Final = -1
NO_OFFSET: Final = -1


class OffsetSpec(IntEnum):
    """What may be asked for in place of a timestamp. Of a topic that is not tiered the last two find no offset."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


# Compared as plain numbers, which costs a fraction of comparing with an enumeration's members.
_LATEST: Final = int(OffsetSpec.LATEST)
_MAX_TIMESTAMP: Final = int(OffsetSpec.MAX_TIMESTAMP)
_EARLIEST: Final = int(OffsetSpec.EARLIEST)
_EARLIEST_LOCAL: Final = int(OffsetSpec.EARLIEST_LOCAL)
_LATEST_TIERED: Final = int(OffsetSpec.LATEST_TIERED)
_TIERED: Final = (int(OffsetSpec.LATEST_TIERED), int(OffsetSpec.EARLIEST_PENDING_UPLOAD))
_OF_THE_STORE: Final = (_EARLIEST, *_TIERED)


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
    if partition.remote is not None:
        return (yield from _find_tiered(partition, partition.remote, timestamp_ms, isolation))
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
    if timestamp_ms == _EARLIEST_LOCAL or (timestamp_ms == _EARLIEST and partition.knows_log_start):
        start = partition.log.log_start_offset if timestamp_ms == _EARLIEST_LOCAL else partition.log_start_offset
        return FoundOffset(NO_TIMESTAMP, start, partition.epoch_at(start))
    if timestamp_ms not in _TIERED:
        return None
    if partition.remote is None:
        return NOTHING_FOUND
    return _tiered(partition, partition.remote, timestamp_ms, isolation) if partition.knows_log_start else None


def _tiered(partition: Partition, remote: RemoteLog, spec: int, isolation: Isolation) -> FoundOffset:
    """The last offset in the object store, or the first one that is still to be copied (KIP-1023, KIP-1241), as long as
    a record that may be seen is there.
    """
    last = remote.last_offset
    if spec == _LATEST_TIERED:
        return FoundOffset(NO_TIMESTAMP, last, NO_EPOCH if last < 0 else partition.epoch_at(last))
    start = partition.log_start_offset if last < 0 else max(last + 1, partition.log_start_offset)
    visible_end = partition.visible_end(isolation)
    if start >= visible_end:
        _require_settled(partition, visible_end)
        return NOTHING_FOUND
    return FoundOffset(NO_TIMESTAMP, start, partition.epoch_at(start))


def _find_tiered(
    partition: Partition, remote: RemoteLog, timestamp_ms: int, isolation: Isolation
) -> Stages[FoundOffset]:
    """`find_offset` of a tiered partition, for what is not known at once.

    Raises as that does; RemoteStorageError if the object store fails, RequestTimedOutError if it takes too long, and
    OffsetNotAvailableError while nobody knows where the log begins.
    """
    log = partition.log
    if timestamp_ms in _OF_THE_STORE:
        yield partial(remote.look_for_client, partition.leader_epoch)
        known = known_offset(partition, timestamp_ms, isolation, NO_EPOCH, may_read_from_follower=True)
        return NOTHING_FOUND if known is None else known
    visible_end = partition.visible_end(isolation)
    found: TimestampOffset | None = None
    if timestamp_ms == _MAX_TIMESTAMP:
        # As in Kafka, that of what is on the disk.
        found = yield log.max_timestamp_offset
    else:
        local_start = -1
        # What retention takes from the disk meanwhile must be looked for in the object store.
        while found is None and local_start != log.log_start_offset:
            local_start = log.log_start_offset
            found = yield partial(remote.find_for_client, timestamp_ms, partition.leader_epoch, local_start)
            if found is None:
                found = yield partial(log.offset_for_timestamp, timestamp_ms)
    if found is None or found.offset >= visible_end:
        _require_settled(partition, visible_end)
        return NOTHING_FOUND
    return FoundOffset(found.timestamp_ms, found.offset, found.leader_epoch)


def _require_settled(partition: Partition, visible_end: int) -> None:
    # The last stable offset may lie before the epoch's start for as long as a transaction is open.
    settled_end = max(visible_end, partition.log.high_watermark)
    if partition.is_leader and settled_end < partition.epoch_start_offset:
        raise OffsetNotAvailableError(f"the high watermark of {partition.topic}-{partition.index} is not settled yet")
