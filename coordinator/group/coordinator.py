"""The group coordinator: which group lives where, and the parts that requests ask.

Handlers in `server/apis/` call `classic_groups`, `consumer_groups`, `share_groups`, `streams_groups` and `offsets`, and
translate; whatever these refuse is a CoordinatorError. A group lives in the partition of `__consumer_offsets` that its
id hashes to, and on this broker as long as it leads that partition.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
)
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.classic.protocol import ClassicProtocol
from ottla.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.coordinator.group.consumer.group import ConsumerConfig, ConsumerGroup
from ottla.coordinator.group.consumer.groups import ConsumerGroups
from ottla.coordinator.group.consumer.member import ConsumerMember
from ottla.coordinator.group.consumer.protocol import ConsumerProtocol
from ottla.coordinator.group.listing import GroupListing, listing_of
from ottla.coordinator.group.locks import GroupLocks
from ottla.coordinator.group.migration.classic_members import ClassicMembers
from ottla.coordinator.group.migration.migration import Migration
from ottla.coordinator.group.modern.protocol import GroupServices
from ottla.coordinator.group.offsets import commits
from ottla.coordinator.group.offsets.deleted_topic_cleanup import DeletedTopicCleanup
from ottla.coordinator.group.offsets.group_offsets import DELETED_AT_ONCE, GroupOffsets
from ottla.coordinator.group.offsets.retention import Retention
from ottla.coordinator.group.protocol import GroupProtocols
from ottla.coordinator.group.shard.shard import GroupShard
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.groups import ShareGroups
from ottla.coordinator.group.share.offsets import ShareOffsets
from ottla.coordinator.group.share.protocol import (
    ShareGroupConfig,
    ShareProtocol,
)
from ottla.coordinator.group.streams.groups import StreamsGroups
from ottla.coordinator.group.streams.heartbeat import StreamsGroupConfig
from ottla.coordinator.group.streams.protocol import StreamsProtocol
from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.log import CoordinatorLog
from ottla.coordinator.partition import Write
from ottla.coordinator.partitioning import coordinator_partition
from ottla.coordinator.replay import CoordinatorRecord
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.share.persister import Persister
from ottla.metadata.image import MetadataDelta
from ottla.runtime.purgatory import Purgatory
from ottla.runtime.supervisor import Loop, Tasks
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)


def _no_persister() -> Persister:
    raise CoordinatorNotAvailableError("the state of share groups is not kept here")


class GroupCoordinator:
    """All groups that this broker coordinates. `nursery` runs its background work."""

    def __init__(
        self,
        *,
        node_id: int,
        config: GroupConfig,
        clock: Clock,
        log: CoordinatorLog,
        topics: GroupTopics,
        purgatory: Purgatory,
        nursery: Tasks,
        group_config: Callable[[str], ConsumerConfig] | None = None,
        share_config: Callable[[str], ShareGroupConfig] = lambda group_id: ShareGroupConfig(),
        streams_config: Callable[[str], StreamsGroupConfig] = lambda group_id: StreamsGroupConfig(),
        persister: Callable[[], Persister] = _no_persister,
    ) -> None:
        """`group_config` gives the settings of one group of the consumer protocol (KIP-848 lets each have its own).

        `share_config` and `streams_config` do the same for share groups and streams groups; `persister` keeps the
        delivery state of share groups, without which there can be none.
        """
        self.config = config
        self._node_id = node_id
        self._clock = clock
        self._topics = topics
        self._nursery = nursery
        self._locks = GroupLocks()
        #: Where sessions and rebalances wait for their time.
        self.purgatory = purgatory
        services = GroupServices(clock, topics, purgatory, nursery, self._locks, self._write)
        self._consumer = ConsumerProtocol(
            services, config=group_config or config.of_consumer_group, downgrade=self._downgrade
        )
        streams = StreamsProtocol(services, config=streams_config)
        share = ShareProtocol(services, config=share_config, find=self._share_group, persister=persister)
        classic_config = config.of_classic_groups()
        self._classic = ClassicProtocol(
            config=classic_config, clock=clock, purgatory=purgatory, nursery=nursery, store=self._store_group
        )
        #: All kinds of groups that there are.
        self._protocols = GroupProtocols(self._classic, (self._consumer, share, streams))
        #: The purgatory in which joins and syncs wait for the other members.
        self.answers = self._classic.answers
        self._migration = Migration(
            config.consumer_migration_policy,
            classic=self._classic,
            classic_max_size=config.max_size,
            consumer=self._consumer,
            topics=topics,
            clock=clock,
            find_shard=self._shard,
            write=self._write,
        )
        self.share_groups = ShareGroups(share, ShareOffsets(share, topics, persister), self._locks, self._shard)
        self.streams_groups = StreamsGroups(streams, self._locks, self._shard)
        self.consumer_groups = ConsumerGroups(self._consumer, self._migration, self._locks, self._shard)
        classic_members = ClassicMembers(self._consumer, topics, config.consumer_migration_policy)
        self.classic_groups = ClassicGroups(
            self._classic,
            {ConsumerGroup: classic_members},
            config=classic_config,
            locks=self._locks,
            find_shard=self._shard,
            write=self._write,
        )
        self._runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            log=log,
            clock=clock,
            nursery=nursery,
            new_shard=self._new_shard,
            replay_batch=GroupShard.replay_batch,
        )
        self.offsets = GroupOffsets(
            self._runtime,
            config=config,
            clock=clock,
            topics=topics,
            partition_for=self.partition_for,
        )
        # As it was when the topic was first seen: groups do not move while the broker runs, as in Kafka.
        self._partition_count: int | None = None
        self._deleted_topics = DeletedTopicCleanup(self._runtime, topics)
        # The partitions with share groups that keep deleted topics for now.
        self._unforgotten: set[int] = set()
        self._retention = Retention(config, self._runtime, self._locks, clock, self._forget_again)
        nursery.start_soon(Loop(self._deleted_topics.run))
        nursery.start_soon(Loop(self._retention.run))

    # Where groups live

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group's id hashes to: Java's String.hashCode.

        What counts is how many partitions the topic has, not how many it would be created with: the setting may have
        changed.
        """
        return coordinator_partition(group_id, self._partition_count or self.config.offsets_topic_partitions)

    @property
    def runtime(self) -> CoordinatorRuntime[GroupShard]:
        """The runtime, which loads the shards and writes their records."""
        return self._runtime

    def apply(self, delta: MetadataDelta) -> None:
        """Follow the cluster: coordinate what this broker leads, and forget the offsets of deleted topics.

        Called after the replica manager has applied the same delta.
        """
        for topic in delta.deleted_topics:
            if topic.name == OFFSETS_TOPIC:
                self._partition_count = None
                for partition in range(len(topic.partitions)):
                    self._runtime.resign(partition)
            else:
                self._deleted_topics.forget_topic(topic.name)
        for change in delta.changed_partitions:
            if change.topic.name != OFFSETS_TOPIC:
                continue
            self._partition_count = self._partition_count or len(change.topic.partitions)
            self._runtime.follow(change, self._node_id)
        if delta.deleted_topics:
            for shard in self._runtime.loaded_shards():
                self._nursery.start_soon(self._forget_shares, shard.partition)

    def _new_shard(self, partition: int) -> GroupShard:
        return GroupShard(partition, self._protocols, self._look_through)

    def _look_through(self, partition: int) -> None:
        """Topics that were deleted while the partition had no leader are found when it is loaded."""
        self._deleted_topics.look_at(partition)
        self._nursery.start_soon(self._forget_shares, partition)

    async def _forget_shares(self, partition: int) -> None:
        """Take deleted topics out of the share groups of a partition. One that is not here is looked through when it is
        loaded.
        """
        try:
            groups = self._runtime.shard(partition).groups_of(ShareGroup)
        except CoordinatorError:
            return
        try:
            await self.share_groups.forget_topics(groups)
        except CoordinatorError as error:
            logger.debug("share groups of partition %d keep deleted topics for now: %s", partition, error)
            self._unforgotten.add(partition)

    def _forget_again(self) -> None:
        """Look again where something of deleted topics was left."""
        self._deleted_topics.try_again()
        while self._unforgotten:
            self._nursery.start_soon(self._forget_shares, self._unforgotten.pop())

    def _shard(self, group_id: str) -> GroupShard:
        return self._runtime.shard(self.partition_for(group_id))

    def _share_group(self, group_id: str) -> ShareGroup | None:
        return self._shard(group_id).find(group_id, ShareGroup)

    async def _write(self, group_id: str, written: Sequence[CoordinatorRecord]) -> None:
        await self._runtime.write(self.partition_for(group_id), written)

    async def _downgrade(self, group: ConsumerGroup, leaving: ConsumerMember | None) -> bool:
        return await self._migration.downgrade(group, leaving)

    def _store_group(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> Awaitable[None]:
        return self._begin_store(group, assignments).wait()

    def _begin_store(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> Write:
        try:
            shard = self._shard(group.group_id)
            if shard.groups.get(group.group_id) is not group:
                raise CoordinatorNotAvailableError(f"group {group.group_id} was removed, or changed its protocol")
            return self._runtime.begin_write(shard.partition, [group.metadata_record(assignments)])
        except CoordinatorError as error:
            refused = Write()
            refused.settle(error)
            return refused

    # Administration

    def list_groups(self) -> Iterator[GroupListing]:
        """Every group of this broker. There may be tens of thousands: take them in steps."""
        shards = self._runtime.shards()
        return (listing_of(group) for shard in shards for group in list(shard.groups.values()))

    async def delete_group(self, group_id: str) -> None:
        """Remove an empty group with its offsets, also those in open transactions. If that is refused in the midst of
        many offsets, the group is left with the others.
        """
        async with self._locks.exclusively(group_id):
            shard = self._shard(group_id)
            share_group = shard.find(group_id, ShareGroup)
            if share_group is not None:
                await self.share_groups.forget_offsets(share_group)
            with trio.CancelScope(shield=True):
                # Many offsets go in several steps, so that none holds up others; what is committed meanwhile goes with
                # the group.
                keys = shard.offsets.keys(group_id)
                for start in range(0, len(keys) - DELETED_AT_ONCE, DELETED_AT_ONCE):
                    await self._delete(shard, group_id, keys[start : start + DELETED_AT_ONCE])
                await self._delete(shard, group_id, None)

    async def _delete(self, shard: GroupShard, group_id: str, keys: Sequence[bytes] | None) -> None:
        plan = partial(commits.deletion_records, shard, group_id, keys)
        await self._runtime.begin_planned_write(shard.partition, plan, shard=shard).wait()
