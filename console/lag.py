"""How far a group is behind: its committed offsets against the ends of the partitions."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ottla.console.rendering import Slices
from ottla.server.replica.errors import ReplicaError
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.coordinator.group.offsets import TopicPartition
    from ottla.server.coordinator.group.shard import GroupShard


class PartitionLag(NamedTuple):
    """One partition of a group. `end_offset` and `lag` are None where another node has the partition, or nobody."""

    topic: str
    partition: int
    committed_offset: int
    end_offset: int | None
    lag: int | None


def shard_of(broker: Broker, group_id: str) -> GroupShard | None:
    """Where the group's offsets are; None while they are being loaded, or on another node."""
    partition = broker.group_coordinator.partition_for(group_id)
    shards: list[GroupShard] = broker.group_coordinator.runtime.loaded_shards()
    return next((shard for shard in shards if shard.partition == partition), None)


async def partition_lags(broker: Broker, shard: GroupShard, group_id: str, limit: int) -> list[PartitionLag]:
    """Partitions that the group has committed an offset of, `limit` at most, in order."""
    slices = Slices()
    found = []
    for where, offset in islice(shard.offsets.offsets(group_id), limit):
        found.append(_lag(broker, where, offset))
        if slices.over:
            await slices.rest()
    return sorted(found, key=lambda each: each[:2])


async def group_lag(broker: Broker, shard: GroupShard, group_id: str) -> int | None:
    """The sum over the partitions whose end is known here; None if none is."""
    slices = Slices()
    total = None
    for where, offset in shard.offsets.offsets(group_id):
        lag = _lag(broker, where, offset).lag
        if lag is not None:
            total = lag + (total or 0)
        if slices.over:
            await slices.rest()
    return total


def _lag(broker: Broker, where: TopicPartition, offset: int) -> PartitionLag:
    end_offset = end_of(broker, where.topic, where.partition)
    lag = None if end_offset is None else max(0, end_offset - offset)
    return PartitionLag(where.topic, where.partition, offset, end_offset, lag)


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
