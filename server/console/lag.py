"""How far a group is behind: its committed offsets against the ends of the partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.server.coordinator.errors import CoordinatorError
from ottla.server.coordinator.group.offsets import CommittedOffset
from ottla.server.replica.errors import ReplicaError
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.coordinator.group.offsets import TopicPartition


class PartitionLag(NamedTuple):
    """One partition of a group. `end_offset` and `lag` are None where another node has the partition, or nobody."""

    topic: str
    partition: int
    committed: CommittedOffset
    end_offset: int | None
    lag: int | None


def partition_lags(broker: Broker, group_id: str) -> list[PartitionLag]:
    """Every partition that the group has committed an offset of, in order. Raises CoordinatorError."""
    offsets = broker.group_coordinator.fetch_offsets(group_id, None, require_stable=False)
    return [
        _lag(broker, partition, committed)
        for partition, committed in sorted(offsets.items())
        if isinstance(committed, CommittedOffset)
    ]


def group_lag(broker: Broker, group_id: str) -> int | None:
    """The sum over the partitions whose end is known here; None if none is."""
    try:
        known = [each.lag for each in partition_lags(broker, group_id) if each.lag is not None]
    except CoordinatorError:
        return None
    return sum(known) if known else None


def _lag(broker: Broker, where: TopicPartition, committed: CommittedOffset) -> PartitionLag:
    end_offset = end_of(broker, where.topic, where.partition)
    lag = None if end_offset is None else max(0, end_offset - committed.offset)
    return PartitionLag(where.topic, where.partition, committed, end_offset, lag)


def end_of(broker: Broker, topic: str, partition: int) -> int | None:
    """The high watermark of a partition that this node leads, else None."""
    image = broker.metadata.topic(topic)
    if image is None:
        return None
    try:
        held = broker.replica_manager.get_partition(image.topic_id, partition)
    except (ReplicaError, StorageError):
        return None
    return held.log.high_watermark if held.is_leader else None
