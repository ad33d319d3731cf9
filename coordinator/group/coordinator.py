"""The group coordinator: which group lives where, and the parts that requests ask.

Handlers in `server/apis/` call `classic_groups`, `consumer_groups`, `share_groups`, `streams_groups` and `offsets`, and
translate; whatever these refuse is a CoordinatorError. A group lives in the partition of `__consumer_offsets` that its
id hashes to, and on this broker as long as it leads that partition.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.coordinator.errors import CoordinatorNotAvailableError
from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.classic.protocol import ClassicProtocol
from ottla.coordinator.group.configs import GroupConfigs
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.groups import ConsumerGroups
from ottla.coordinator.group.consumer.protocol import ConsumerProtocol
from ottla.coordinator.group.deleted_topics import DeletedTopics
from ottla.coordinator.group.listing import GroupListing, listing_of
from ottla.coordinator.group.locks import GroupLocks
from ottla.coordinator.group.migration.classic_members import ClassicMembers
from ottla.coordinator.group.migration.migration import Migration
from ottla.coordinator.group.modern.protocol import GroupServices
from ottla.coordinator.group.offsets import commits
from ottla.coordinator.group.offsets.group_offsets import GroupOffsets
from ottla.coordinator.group.offsets.retention import Retention
from ottla.coordinator.group.protocol import GroupProtocols
from ottla.coordinator.group.shard.shards import GroupShards
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.groups import ShareGroups
from ottla.coordinator.group.share.offsets import ShareOffsets
from ottla.coordinator.group.share.protocol import ShareProtocol
from ottla.coordinator.group.streams.groups import StreamsGroups
from ottla.coordinator.group.streams.protocol import StreamsProtocol
from ottla.coordinator.partition import PLANNED_RECORDS
from ottla.runtime.supervisor import Loop, Tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.coordinator.group.config import GroupConfig
    from ottla.coordinator.group.group import Group
    from ottla.coordinator.group.shard.shard import GroupShard
    from ottla.coordinator.group.topics import GroupTopics
    from ottla.coordinator.log import CoordinatorLog
    from ottla.coordinator.runtime import CoordinatorRuntime
    from ottla.coordinator.share.persister import Persister, ShareStateStore
    from ottla.metadata.image import MetadataDelta
    from ottla.runtime.purgatory import Purgatory
    from ottla.storage.clock import Clock


class _NoShareState:
    """Without it there can be no share groups."""

    @property
    def persister(self) -> Persister:
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
        configs: GroupConfigs | None = None,
        share_state: ShareStateStore | None = None,
    ) -> None:
        """`configs` are the settings of single groups, `share_state` keeps the delivery state of share groups."""
        self.config = config
        #: Where sessions and rebalances wait for their time.
        self.purgatory = purgatory
        self._locks = locks = GroupLocks()
        partitions = config.offsets_topic_partitions
        self._shards = shards = GroupShards(partitions, node_id=node_id, log=log, clock=clock, nursery=nursery)
        services = GroupServices(clock, topics, purgatory, nursery, locks, shards)
        configs = configs or GroupConfigs(config)
        share_state = share_state or _NoShareState()
        classic, consumer = self._serve_consumers(services, configs)
        streams = StreamsProtocol(services, configs=configs)
        share = ShareProtocol(services, configs=configs, state=share_state)
        #: The purgatory in which joins and syncs wait for the other members.
        self.answers = classic.answers
        self.streams_groups = StreamsGroups(streams, locks, shards)
        self.share_groups = ShareGroups(share, ShareOffsets(share, topics, share_state), locks, shards)
        self.offsets = GroupOffsets(shards, config=config, clock=clock, topics=topics)
        self._deleted_topics = DeletedTopics(shards, self.share_groups, topics, nursery)
        #: All kinds of groups that there are.
        self._protocols = GroupProtocols(classic, (consumer, share, streams))
        shards.serve(self._protocols, self._deleted_topics)
        retention = Retention(config, shards.runtime, locks, clock, self._deleted_topics)
        nursery.start_soon(Loop(self._deleted_topics.run))
        nursery.start_soon(Loop(retention.run))

    def _serve_consumers(
        self, services: GroupServices, configs: GroupConfigs
    ) -> tuple[ClassicProtocol, ConsumerProtocol]:
        """Run classic groups and those of the consumer protocol: a group may change from one to the other."""
        clock, topics, purgatory, nursery, locks, shards = services
        config, policy = self.config, self.config.consumer_migration_policy
        classic_config = config.of_classic_groups()
        classic = ClassicProtocol(
            config=classic_config, clock=clock, purgatory=purgatory, nursery=nursery, store=shards
        )
        migration = Migration(
            policy, classic=classic, classic_max_size=config.max_size, configs=configs, services=services
        )
        consumer = ConsumerProtocol(services, configs=configs, conversion=migration)
        others: dict[type[Group], ClassicMembers] = {ConsumerGroup: ClassicMembers(consumer, topics, policy)}
        self.consumer_groups = ConsumerGroups(consumer, migration, locks, shards)
        self.classic_groups = ClassicGroups(classic, others, config=classic_config, locks=locks, shards=shards)
        return classic, consumer

    @property
    def runtime(self) -> CoordinatorRuntime[GroupShard]:
        """The runtime, which loads the shards and writes their records."""
        return self._shards.runtime

    def partition_for(self, group_id: str) -> int:
        """See `GroupShards`."""
        return self._shards.partition_for(group_id)

    def apply(self, delta: MetadataDelta) -> None:
        """Follow the cluster: coordinate what this broker leads, and forget the offsets of deleted topics.

        Called after the replica manager has applied the same delta.
        """
        self._shards.follow(delta)
        self._deleted_topics.follow(delta)

    # Administration

    def list_groups(self) -> Iterator[GroupListing]:
        """Every group of this broker. There may be tens of thousands: take them in steps."""
        shards = self.runtime.shards()
        return (listing_of(group) for shard in shards for group in list(shard.groups.values()))

    async def delete_group(self, group_id: str) -> None:
        """Remove an empty group with its offsets, also those in open transactions. If that is refused in the midst of
        many offsets, the group is left with the others.
        """
        async with self._locks.exclusively(group_id):
            shard = self._shards.of(group_id)
            share_group = shard.find(group_id, ShareGroup)
            if share_group is not None:
                await self.share_groups.forget_offsets(share_group)
            with trio.CancelScope(shield=True):
                # Many offsets go in several steps, so that none holds up others; what is committed meanwhile goes with
                # the group.
                keys = shard.offsets.keys(group_id)
                for start in range(0, len(keys) - PLANNED_RECORDS, PLANNED_RECORDS):
                    await self._delete(shard, group_id, keys[start : start + PLANNED_RECORDS])
                await self._delete(shard, group_id, None)

    async def _delete(self, shard: GroupShard, group_id: str, keys: Sequence[bytes] | None) -> None:
        plan = partial(commits.deletion_records, shard, group_id, keys)
        await self.runtime.begin_planned_write(shard.partition, plan, shard=shard).wait()
