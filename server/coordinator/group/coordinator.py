"""The group coordinator: which group lives where, and what each request does to it.

Handlers in `server/apis/` call this class and translate; whatever it refuses is a CoordinatorError. A group lives in
the partition of `__consumer_offsets` that its id hashes to, and on this broker as long as it leads that partition.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import trio

from ottla.kproto.records import EndTxnMarker
from ottla.server.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    UnknownMemberIdError,
)
from ottla.server.coordinator.group import commits, committers, consumer_records, records, streams_records
from ottla.server.coordinator.group.classic import ClassicProtocol, JoinRequest
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicState, JoinResult, SyncResult
from ottla.server.coordinator.group.classic_members import ClassicMembers
from ottla.server.coordinator.group.classic_rebalance import ClassicConfig
from ottla.server.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.server.coordinator.group.consumer import ConsumerConfig, ConsumerProtocol, Heartbeat, HeartbeatResult
from ottla.server.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from ottla.server.coordinator.group.forgetting import Forgetting
from ottla.server.coordinator.group.listing import GroupListing, listing_of
from ottla.server.coordinator.group.locks import GroupLocks
from ottla.server.coordinator.group.migration import Migration
from ottla.server.coordinator.group.modern import Surroundings
from ottla.server.coordinator.group.modern_group import JOIN_EPOCH
from ottla.server.coordinator.group.offsets import CommittedOffset, TopicPartition
from ottla.server.coordinator.group.retention import Retention
from ottla.server.coordinator.group.shard import GroupShard
from ottla.server.coordinator.group.share import (
    ShareGroupConfig,
    ShareProtocol,
)
from ottla.server.coordinator.group.share_group import ShareGroup
from ottla.server.coordinator.group.share_groups import ShareGroups
from ottla.server.coordinator.group.share_offsets import ShareOffsets
from ottla.server.coordinator.group.streams import (
    StreamsGroupConfig,
    StreamsProtocol,
)
from ottla.server.coordinator.group.streams_group import StreamsGroup
from ottla.server.coordinator.group.streams_groups import StreamsGroups
from ottla.server.coordinator.group.topics import GroupTopics
from ottla.server.coordinator.group.transaction_guards import TransactionGuard, TransactionGuards
from ottla.server.coordinator.log import CoordinatorLog
from ottla.server.coordinator.partition import Write
from ottla.server.coordinator.partitioning import coordinator_partition
from ottla.server.coordinator.replay import CoordinatorRecord, Producer
from ottla.server.coordinator.runtime import CoordinatorRuntime
from ottla.server.coordinator.share.persister import Persister
from ottla.server.metadata.image import MetadataDelta
from ottla.server.waiting.purgatory import Purgatory
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

DELETED_AT_ONCE: Final = 64
"""How many offsets of a group go at a time. To plan, append and replay these takes less than 0.5 ms."""


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
        nursery: trio.Nursery,
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
        self._guards = TransactionGuards()
        #: Where sessions and rebalances wait for their time.
        self.purgatory = purgatory
        surroundings = Surroundings(clock, topics, purgatory, nursery, self._locks, self._write)
        self._consumer = ConsumerProtocol(
            surroundings, config=group_config or config.of_consumer_group, downgrade=self._downgrade
        )
        self._streams = StreamsProtocol(surroundings, config=streams_config)
        self._share = ShareProtocol(
            surroundings,
            config=share_config,
            find=lambda group_id: self._shard(group_id).share_group(group_id),
            persister=persister,
        )
        self.share_groups = ShareGroups(
            self._share, ShareOffsets(self._share, topics, persister), self._locks, self._shard
        )
        self.streams_groups = StreamsGroups(self._streams, self._locks, self._shard)
        self._classic = ClassicProtocol(
            config=ClassicConfig(config.initial_rebalance_delay_ms, config.max_size),
            clock=clock,
            purgatory=purgatory,
            nursery=nursery,
            store=self._store_group,
        )
        #: Where joins and syncs wait for the other members.
        self.answers = self._classic.answers
        self._classic_members = ClassicMembers(self._consumer, topics)
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
        self._runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            log=log,
            clock=clock,
            nursery=nursery,
            new_shard=self._new_shard,
            replay_batch=GroupShard.replay_batch,
        )
        # As it was when the topic was first seen: groups do not move while the broker runs, as in Kafka.
        self._partition_count: int | None = None
        self._forgetting = Forgetting(self._runtime, topics)
        # The partitions with share groups that keep deleted topics for now.
        self._unforgotten: set[int] = set()
        self._retention = Retention(config, self._runtime, self._locks, clock, self._forget_again)
        nursery.start_soon(self._forgetting.run)
        nursery.start_soon(self._retention.run)

    # Where groups live

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group's id hashes to: Java's String.hashCode.

        What counts is how many partitions the topic has, not how many it would be created with: the setting may have
        changed.
        """
        return coordinator_partition(group_id, self._partition_count or self.config.offsets_topic_partitions)

    @property
    def runtime(self) -> CoordinatorRuntime[GroupShard]:
        """What runs the shards: their loading and their writes."""
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
                self._forgetting.forget_topic(topic.name)
        for change in delta.changed_partitions:
            if change.topic.name != OFFSETS_TOPIC:
                continue
            self._partition_count = self._partition_count or len(change.topic.partitions)
            self._runtime.follow(change, self._node_id)
        if delta.deleted_topics:
            for shard in self._runtime.loaded_shards():
                self._nursery.start_soon(self._forget_shares, shard.partition)

    def _new_shard(self, partition: int) -> GroupShard:
        return GroupShard(
            partition,
            self._classic,
            self._consumer,
            self._share,
            self._streams,
            self._clock.time_ms,
            self._look_through,
        )

    def _look_through(self, partition: int) -> None:
        """What was deleted while nobody led the partition is found when it is loaded."""
        self._forgetting.look_at(partition)
        self._nursery.start_soon(self._forget_shares, partition)

    async def _forget_shares(self, partition: int) -> None:
        """Take deleted topics out of the share groups of a partition. One that is not here is looked through when it is
        loaded.
        """
        try:
            groups = self._runtime.shard(partition).share_groups()
        except CoordinatorError:
            return
        try:
            await self.share_groups.forget_topics(groups)
        except CoordinatorError as error:
            logger.debug("share groups of partition %d keep deleted topics for now: %s", partition, error)
            self._unforgotten.add(partition)

    def _forget_again(self) -> None:
        """Look again where something of deleted topics was left."""
        self._forgetting.try_again()
        while self._unforgotten:
            self._nursery.start_soon(self._forget_shares, self._unforgotten.pop())

    def _shard(self, group_id: str) -> GroupShard:
        return self._runtime.shard(self.partition_for(group_id))

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
            return self._runtime.begin_write(shard.partition, [records.group_metadata(group, assignments)])
        except CoordinatorError as error:
            refused = Write()
            refused.settle(error)
            return refused

    # The classic protocol

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        """JoinGroup: returns with the next generation."""
        if not group_id:
            raise InvalidGroupIdError("a group id is needed to join")
        if not self.config.min_session_timeout_ms <= request.session_timeout_ms <= self.config.max_session_timeout_ms:
            raise InvalidSessionTimeoutError(
                f"{request.session_timeout_ms} ms lies outside {self.config.min_session_timeout_ms} to "
                f"{self.config.max_session_timeout_ms} ms"
            )
        async with self._locks.exclusively(group_id):
            group = self._shard(group_id).groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                if group.members:
                    return await self._classic_members.join(group, request)
                # An empty group of the consumer protocol gives way to the classic one; its offsets stay.
                with trio.CancelScope(shield=True):
                    await self._write(group_id, consumer_records.group_tombstones(group))
            elif isinstance(group, StreamsGroup) and not group.members:
                with trio.CancelScope(shield=True):
                    await self._write(group_id, streams_records.group_tombstones(group))
            elif isinstance(group, ShareGroup | StreamsGroup):
                raise InconsistentGroupProtocolError(f"group {group_id} is a share group or a streams group")
        # No other task runs between here and the join's first wait.
        return await self._classic.join(self._joined_group(group_id, request), request)

    def _joined_group(self, group_id: str, request: JoinRequest) -> ClassicGroup:
        """The classic group to join; it is created for a new member."""
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup | ShareGroup | StreamsGroup):
            raise CoordinatorNotAvailableError(f"group {group_id} moved away and came back")
        if group is None:
            if request.member_id:
                raise UnknownMemberIdError(f"no member {request.member_id}: group {group_id} does not exist")
            group = shard.groups[group_id] = ClassicGroup(group_id, now_ms=self._clock.time_ms())
        return group

    # The consumer protocol

    async def consumer_heartbeat(self, group_id: str, beat: Heartbeat) -> HeartbeatResult:
        """ConsumerGroupHeartbeat: join, stay, revoke, take or leave."""
        async with self._locks.exclusively(group_id):
            shard = self._shard(group_id)
            group = shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                return await self._consumer.heartbeat(group, beat)
            if isinstance(group, ShareGroup | StreamsGroup):
                raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
            if beat.member_epoch != JOIN_EPOCH:
                raise GroupIdNotFoundError(f"Group {group_id} not found.")
            if group is not None and not group.is_in(ClassicState.EMPTY):
                return await self._upgrade(group, beat)
            founded = ConsumerGroup(group_id)
            if group is not None and group.generation_id:
                founded.founding = [records.group_tombstone(group_id)]
            with shard.expecting(founded):
                return await self._consumer.heartbeat(founded, beat)

    async def _upgrade(self, group: ClassicGroup, beat: Heartbeat) -> HeartbeatResult:
        """Turn a classic group with members into one of the consumer protocol, for the member that joins.

        If the member is refused, or its client goes away first, the group is turned back: nobody in it would speak the
        consumer protocol.
        """
        upgraded = await self._migration.upgrade(group)
        try:
            return await self._consumer.heartbeat(upgraded, beat)
        except BaseException:
            if not upgraded.removed:
                await self._migration.turn_back(upgraded)
            raise

    # The classic protocol, for members of classic groups and of consumer groups

    async def sync(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
    ) -> SyncResult:
        """SyncGroup: returns with this member's assignment."""
        consumer_group = self._consumer_group(group_id)
        if consumer_group is not None:
            return self._classic_members.sync(
                consumer_group,
                member_id=member_id,
                group_instance_id=group_instance_id,
                generation_id=generation_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
            )
        return await self._classic.sync(
            self._member_group(group_id),
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation_id=generation_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments,
        )

    def heartbeat(self, group_id: str, *, member_id: str, group_instance_id: str | None, generation_id: int) -> None:
        """Heartbeat: extends the session, or raises the error that tells the member what to do."""
        consumer_group = self._consumer_group(group_id)
        if consumer_group is not None:
            self._classic_members.heartbeat(
                consumer_group,
                member_id=member_id,
                group_instance_id=group_instance_id,
                generation_id=generation_id,
            )
            return
        self._classic.heartbeat(
            self._member_group(group_id),
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation_id=generation_id,
        )

    async def leave(self, group_id: str, member_id: str, group_instance_id: str | None) -> str:
        """LeaveGroup of one member, of either protocol; returns the id of whoever left."""
        async with self._locks.exclusively(group_id):
            consumer_group = self._consumer_group(group_id)
            if consumer_group is not None:
                return await self._consumer.expel(consumer_group, member_id, group_instance_id)
            return self._classic.leave(self._member_group(group_id), member_id, group_instance_id)

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        return self._shard(group_id).consumer_group(group_id) if group_id else None

    def _member_group(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise InvalidGroupIdError("a group id is needed")
        group = self._shard(group_id).classic_group(group_id)
        if group is None:
            raise UnknownMemberIdError(f"group {group_id} does not exist")
        return group

    # Offsets

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, commits.OffsetToCommit],
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        generation_id: int = -1,
        producer: Producer | None = None,
        knows_epochs: bool = True,
    ) -> commits.Refusals:
        """OffsetCommit, and TxnOffsetCommit with a producer; returns the partitions that were refused.

        `knows_epochs`: the request's version is one that members of KIP-848 may commit with.
        """
        commit = self.begin_commit(
            group_id,
            offsets,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation_id=generation_id,
            producer=producer,
            knows_epochs=knows_epochs,
        )
        await commit.write.wait()
        return commit.refused

    def begin_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, commits.OffsetToCommit],
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        producer: Producer | None,
        knows_epochs: bool,
        may_be_alone: bool = False,
    ) -> commits.Commit:
        """The first half of `commit_offsets`: the offsets have their place in the order of the group's writes.

        With `may_be_alone` they may already be committed when it returns (`CoordinatorPartition.submit`).
        """
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        committers.check_commit(
            group,
            group_id,
            offsets,
            self._classic,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation_id=generation_id,
            producer=producer,
            knows_epochs=knows_epochs,
        )
        written, refused = commits.commit_records(
            group_id,
            offsets,
            metadata_max_size=self.config.offset_metadata_max_bytes,
            now_ms=self._clock.time_ms(),
            is_living=self._topics.is_living,
        )
        write = self._runtime.begin_write(shard.partition, written, producer=producer, may_be_alone=may_be_alone)
        return commits.Commit(write, refused)

    async def complete_transaction(self, partition: int, marker: EndTxnMarker) -> None:
        """Write a transaction's marker into a partition of `__consumer_offsets`; commits or drops its offsets."""
        self._guards.end(partition, marker.producer_id)
        await self._runtime.write_marker(partition, marker)

    def watch_transaction(self, group_id: str, producer_id: int) -> AbstractContextManager[TransactionGuard]:
        """Notice whether a producer's transaction over the group's offsets ends while its coordinator is asked."""
        return self._guards.watch(self.partition_for(group_id), producer_id)

    def committed_partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """The partitions for which a group has offsets, in no order, decoded one by one as they are taken."""
        return map(records.offset_partition, self._shard(group_id).offsets.committed_keys(group_id))

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[TopicPartition, CommittedOffset | Exception | None]:
        """OffsetFetch: committed offsets, None where there is none; all of the group's for `partitions=None`.

        Offsets of a deleted topic are left out, even if there is a new topic of that name.

        A classic group lets anybody read; `member_id` and `member_epoch` are checked by groups of KIP-848 and KIP-1071.
        """
        shard = self._shard(group_id)
        committers.check_fetch(shard.groups.get(group_id), group_id, member_id, member_epoch)
        found = commits.fetch(
            shard, group_id, partitions, require_stable=require_stable, is_living=self._topics.is_living
        )
        return dict(found)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> commits.Refusals:
        """OffsetDelete; returns the partitions that were refused."""
        shard = self._shard(group_id)
        asked = list(partitions)
        refused: commits.Refusals = {}

        def plan(some: Sequence[TopicPartition]) -> Sequence[CoordinatorRecord]:
            written, refusals = commits.delete_records(shard, group_id, some)
            refused.update(refusals)
            return written

        for start in range(0, len(asked) or 1, DELETED_AT_ONCE):
            some = partial(plan, asked[start : start + DELETED_AT_ONCE])
            await self._runtime.begin_planned_write(shard.partition, some, shard=shard).wait()
        return refused

    # Administration

    def list_groups(self) -> list[GroupListing]:
        """Every group of this broker."""
        return [listing_of(group) for shard in self._runtime.shards() for group in shard.groups.values()]

    def describe_group(self, group_id: str) -> ClassicGroup:
        """The group as it is now. Raises GroupIdNotFoundError."""
        group = self._shard(group_id).groups.get(group_id)
        if isinstance(group, ConsumerGroup | ShareGroup | StreamsGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")
        if group is None or group.is_in(ClassicState.DEAD):
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group

    def describe_consumer_group(self, group_id: str) -> ConsumerGroup:
        """The group of the consumer protocol as it is now. Raises GroupIdNotFoundError."""
        group = self._shard(group_id).groups.get(group_id)
        if isinstance(group, ClassicGroup | ShareGroup | StreamsGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group

    async def delete_group(self, group_id: str) -> None:
        """Remove an empty group with its offsets, also those in open transactions. If that is refused in the midst of
        many offsets, the group is left with the others.
        """
        async with self._locks.exclusively(group_id):
            shard = self._shard(group_id)
            share_group = shard.share_group(group_id)
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
