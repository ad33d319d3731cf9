"""Where groups live: the partitions of `__consumer_offsets` that this broker leads, and the writes of their groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.errors import CoordinatorError, CoordinatorNotAvailableError
from ottla.coordinator.group.shard.shard import GroupShard, ShardListener
from ottla.coordinator.partition import Write
from ottla.coordinator.partitioning import coordinator_partition
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.metadata.internal_topics import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from ottla.coordinator.group.group import Group
    from ottla.coordinator.group.protocol import GroupProtocols
    from ottla.coordinator.log import CoordinatorLog
    from ottla.coordinator.replay import CoordinatorRecord
    from ottla.metadata.image import MetadataDelta
    from ottla.runtime.supervisor import Tasks
    from ottla.storage.clock import Clock


class GroupShards:
    """The shards of one broker. `serve` says what runs their groups, before the first partition is led."""

    def __init__(
        self, topic_partitions: int, *, node_id: int, log: CoordinatorLog, clock: Clock, nursery: Tasks
    ) -> None:
        """`topic_partitions` is how many partitions the topic would be created with."""
        self._topic_partitions = topic_partitions
        self._node_id = node_id
        #: Loads the shards and writes their records.
        self.runtime = CoordinatorRuntime(
            CONSUMER_OFFSETS,
            log=log,
            clock=clock,
            nursery=nursery,
            new_shard=self._new_shard,
            replay_batch=GroupShard.replay_batch,
        )
        # As it was when the topic was first seen: groups do not move while the broker runs, as in Kafka.
        self._partition_count: int | None = None
        self._protocols: GroupProtocols | None = None
        self._listener: ShardListener | None = None

    def serve(self, protocols: GroupProtocols, listener: ShardListener) -> None:
        """These run the groups; the listener hears of every partition that was loaded."""
        self._protocols = protocols
        self._listener = listener

    def _new_shard(self, partition: int) -> GroupShard:
        assert self._protocols is not None, "nothing runs the groups yet"
        return GroupShard(partition, self._protocols, self._listener)

    def follow(self, delta: MetadataDelta) -> None:
        """Coordinate what this broker leads, and nothing else."""
        for topic in delta.deleted_topics:
            if topic.name == CONSUMER_OFFSETS:
                self._partition_count = None
                for partition in range(len(topic.partitions)):
                    self.runtime.resign(partition)
        for change in delta.changed_partitions:
            if change.topic.name == CONSUMER_OFFSETS:
                self._partition_count = self._partition_count or len(change.topic.partitions)
                self.runtime.follow(change, self._node_id)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group's id hashes to: Java's String.hashCode.

        What counts is how many partitions the topic has, not how many it would be created with: the setting may have
        changed.
        """
        return coordinator_partition(group_id, self._partition_count or self._topic_partitions)

    def of(self, group_id: str) -> GroupShard:
        """The shard that a group lives in. Raises NotCoordinatorError or CoordinatorLoadInProgressError."""
        return self.runtime.shard(self.partition_for(group_id))

    async def write(self, group_id: str, written: Sequence[CoordinatorRecord]) -> None:
        """Commit records of a group and replay them into it. Raises CoordinatorError."""
        await self.runtime.write(self.partition_for(group_id), written)

    def begin_store(self, group: Group, record: CoordinatorRecord) -> Awaitable[None]:
        """Commit a record of a group that is here still. Its place among the writes is settled when this returns; what
        that awaits raises CoordinatorError.
        """
        return self._begin_store(group, record).wait()

    def _begin_store(self, group: Group, record: CoordinatorRecord) -> Write:
        try:
            shard = self.of(group.group_id)
            if shard.groups.get(group.group_id) is not group:
                raise CoordinatorNotAvailableError(f"group {group.group_id} was removed, or changed its protocol")
            return self.runtime.begin_write(shard.partition, [record])
        except CoordinatorError as error:
            refused = Write()
            refused.settle(error)
            return refused
