"""The state of one share partition: its start offset, and the delivery states of records after it. Plain values."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from enum import IntEnum
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

UNINITIALIZED_START_OFFSET: Final = -1
UNINITIALIZED_COUNT: Final = -1
NO_EPOCH: Final = -1

MAX_BATCHES: Final = 10_000
"""In the stored state of one share partition: `group.share.partition.max.record.locks` is no larger."""


class DeliveryState(IntEnum):
    """The delivery state of a record; the numbers are those of the wire and of the state topic."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """It goes to the group's dead-letter queue, and is archived then (KIP-1191)."""
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether the record will not be delivered again."""
        return self in (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class SharePartitionKey(NamedTuple):
    """Names one share partition: a group's view of one partition of a topic."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which its coordinator is found (`SharePartitionKey.asCoordinatorKey` in Kafka)."""
        topic_id = urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """Records from `first_offset` to `last_offset`, both included, of one state and one delivery count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The state of a share partition as its coordinator has it; -1 is what is not known yet."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


class StateChange(NamedTuple):
    """A write of a partition's leader: -1 leaves the start offset as it was; batches are combined with former ones."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


def combine(former: Iterable[StateBatch], newer: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches after `newer` was written over `former`, from the start offset on, as few as possible.

    Where two overlap, the greater delivery count wins, and with equal counts the greater state: a record's history only
    moves on, so what is written late changes nothing (Kafka's `PersisterStateBatchCombiner`).
    """
    pieces = [batch for batch in (*former, *newer) if batch.last_offset >= start_offset]
    pieces = [batch._replace(first_offset=max(batch.first_offset, start_offset)) for batch in pieces]
    if _is_in_order(pieces):
        return _joined(pieces)
    return _joined(_resolved(pieces))


def _is_in_order(batches: Sequence[StateBatch]) -> bool:
    return all(before.last_offset < after.first_offset for before, after in pairwise(batches))


def _resolved(batches: Sequence[StateBatch]) -> list[StateBatch]:
    """The batches in order, where no two overlap: a sweep over the offsets at which something begins or ends."""
    bounds = sorted({edge for batch in batches for edge in (batch.first_offset, batch.last_offset + 1)})
    ordered = sorted(batches)
    resolved: list[StateBatch] = []
    # The batches that have begun, the one that wins in front; one that has ended stays until it comes to the front.
    begun: list[tuple[int, int, StateBatch]] = []
    position = 0
    for first, end in pairwise(bounds):
        while position < len(ordered) and ordered[position].first_offset <= first:
            batch = ordered[position]
            heappush(begun, (-batch.delivery_count, -batch.delivery_state, batch))
            position += 1
        while begun and begun[0][2].last_offset < first:
            heappop(begun)
        if begun:
            _, _, state, count = begun[0][2]
            resolved.append(StateBatch(first, end - 1, state, count))
    return resolved


def _joined(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    joined: list[StateBatch] = []
    for batch in batches:
        if joined and joined[-1].last_offset + 1 == batch.first_offset and joined[-1][2:] == batch[2:]:
            joined[-1] = joined[-1]._replace(last_offset=batch.last_offset)
        else:
            joined.append(batch)
    return tuple(joined)
