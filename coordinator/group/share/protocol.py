"""Share groups (KIP-932): one heartbeat that joins, leaves, subscribes and is told which partitions to fetch from.

What it promises (Kafka's GroupMetadataManager, shareGroupHeartbeat):

- All that a heartbeat changes is committed as one batch before it is answered, and the group follows the log. The
  operations of one group come one after the other.
- A partition is assigned only once its delivery state is set up. The heartbeat that first subscribes to its topic
  begins that, and it goes on in the background. What could not be set up is tried again later.
- Partitions are shared: nobody has to give one up before another member gets it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    GroupMaxSizeReachedError,
)
from ottla.coordinator.group.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.coordinator.group.modern.heartbeat import HeartbeatResult
from ottla.coordinator.group.modern.protocol import GroupServices, ModernProtocol
from ottla.coordinator.group.share import records
from ottla.coordinator.group.share.assignor import ShareMemberSpec, simple_assignor
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.member import ShareCurrent, ShareMember, ShareSubscription
from ottla.coordinator.group.share.state_partitions import Attempt, TopicPartitions
from ottla.coordinator.share.persister import Initialization
from ottla.coordinator.share.state import UNINITIALIZED_START_OFFSET, SharePartitionKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from ottla.coordinator.group.assignment import Assignment
    from ottla.coordinator.group.share.config import ShareGroupConfig, ShareGroupConfigs
    from ottla.coordinator.replay import CoordinatorRecord
    from ottla.coordinator.share.persister import ShareStateStore

logger = logging.getLogger(__name__)

ASSIGNED_ON_THE_LOOP = 200
"""So many members and partitions are assigned in less than 500 µs; more are assigned in a worker thread."""


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat that was found valid. None means unchanged."""

    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str] | None


class ShareProtocol(ModernProtocol[ShareGroup, ShareMember, ShareHeartbeat, HeartbeatResult]):
    """Runs all share groups of one broker. The caller holds the group's lock."""

    group_class = ShareGroup

    def __init__(
        self,
        services: GroupServices,
        *,
        configs: ShareGroupConfigs,
        state: ShareStateStore,
    ) -> None:
        super().__init__(services)
        self._configs = configs
        self._state = state

    async def heartbeat(self, group: ShareGroup, beat: ShareHeartbeat) -> HeartbeatResult:
        """Take one step with a member. Raises CoordinatorError, and then nothing has changed."""
        if beat.member_epoch == LEAVE_EPOCH:
            await self._remove(group, group.find_member(beat.member_id))
            return HeartbeatResult(beat.member_id, LEAVE_EPOCH, 0, None)
        config = self._configs.of_share_group(group.group_id)
        former = self._find_member(group, beat, config)
        before = ShareCurrent() if former is None else former.current
        seen = (self._topics.version, group.state_partitions)
        is_settled = self._is_settled(group, former, beat)
        written, current = await self._step(group, former, beat, config, is_settled=is_settled)
        wanted = {} if is_settled else self._to_initialize(group, beat, config)
        later = _added_later(group, wanted)
        if wanted:
            written.append(records.state_partitions(group.group_id, group.state_partitions.beginning(wanted)))
        await self.commit(group, written)
        group.looked_at(seen)
        if wanted:
            self._nursery.start_soon(self._initialize, group, group.attempt(wanted, self._clock.time_ms()), later)
        self.prolong(group, group.members[beat.member_id])
        is_full = beat.member_epoch == JOIN_EPOCH or beat.topic_names is not None
        changed = is_full or current.assigned != before.assigned
        return HeartbeatResult(
            beat.member_id, current.epoch, config.heartbeat_interval_ms, current.assigned if changed else None
        )

    def _find_member(self, group: ShareGroup, beat: ShareHeartbeat, config: ShareGroupConfig) -> ShareMember | None:
        """The member that a heartbeat speaks for; None for one that joins."""
        member = group.members.get(beat.member_id)
        if member is None:
            if len(group.members) >= config.max_size:
                raise GroupMaxSizeReachedError(
                    f"The share group has reached its maximum capacity of {config.max_size} members."
                )
            if beat.member_epoch != JOIN_EPOCH:
                group.find_member(beat.member_id)
            return None
        member.check_epoch(beat.member_epoch)
        return member

    def _is_settled(self, group: ShareGroup, former: ShareMember | None, beat: ShareHeartbeat) -> bool:
        """Whether nothing has changed of all that the group's target depends on since a heartbeat looked at it."""
        return (
            former is not None
            and former.subscription == _subscription(former, beat)
            and group.group_epoch == group.target_epoch
            and not group.state_partitions.initializing
            and group.seen is not None
            and group.seen[0] == self._topics.version
            and group.seen[1] is group.state_partitions
        )

    async def _step(
        self,
        group: ShareGroup,
        former: ShareMember | None,
        beat: ShareHeartbeat,
        config: ShareGroupConfig,
        *,
        is_settled: bool,
    ) -> tuple[list[CoordinatorRecord], ShareCurrent]:
        """The records of what a heartbeat changes, and where the member stands after them."""
        group_id, member_id = group.group_id, beat.member_id
        subscription = _subscription(former, beat)
        written: list[CoordinatorRecord] = []
        if former is None or former.subscription != subscription:
            written.append(records.member_subscription(group_id, member_id, subscription))
        target: Mapping[str, Assignment] = group.target
        target_epoch = group.target_epoch
        if not is_settled:
            # A member that joins without a subscription changes nothing for the others.
            names_before = frozenset() if former is None else former.subscription.topic_names
            bumps = names_before != subscription.topic_names
            changes, target, target_epoch = await self._changes(group, member_id, subscription, config, bumps=bumps)
            written += changes
        current = before = ShareCurrent() if former is None else former.current
        resubscribed = former is not None and former.subscription.topic_names != subscription.topic_names
        if former is None or before.epoch != target_epoch or resubscribed:
            # The target may be older than the subscription: nothing of another topic is given to the member.
            own = target.get(member_id, {})
            names = self._topics.names(own)
            assigned = {id_: indexes for id_, indexes in own.items() if names.get(id_) in subscription.topic_names}
            current = ShareCurrent(target_epoch, before.epoch, assigned)
            written.append(records.current_assignment(group_id, member_id, current))
        return written, current

    async def _changes(
        self,
        group: ShareGroup,
        member_id: str,
        subscription: ShareSubscription,
        config: ShareGroupConfig,
        *,
        bumps: bool,
    ) -> tuple[list[CoordinatorRecord], Mapping[str, Assignment], int]:
        """The records of the group's epoch and target, and the target with its epoch after them."""
        group_id = group.group_id
        subscriptions = {each.member_id: each.subscription for each in group.members.values()}
        subscriptions[member_id] = subscription
        written: list[CoordinatorRecord] = []
        bumps |= group.group_epoch <= group.target_epoch and self._lacks_initialized(group)
        epoch, now_ms = group.group_epoch, self._clock.time_ms()
        metadata_hash = await self._topics.metadata_hash(_all_names(subscriptions.values()))
        if bumps or metadata_hash != group.metadata_hash:
            epoch += 1
            written.append(records.group_epoch(group_id, epoch, metadata_hash))
        if epoch <= group.target_epoch or not group.may_assign(now_ms, config.assignment_interval_ms):
            return written, group.target, group.target_epoch
        target = await self._assign(group, subscriptions)
        written += [
            records.target_assignment(group_id, each, assignment)
            for each, assignment in target.items()
            if group.target.get(each) != assignment
        ]
        written.append(records.target_epoch(group_id, epoch, now_ms))
        return written, target, epoch

    def _lacks_initialized(self, group: ShareGroup) -> bool:
        """Whether partitions were set up that no member has yet."""
        subscribed = self._topics.ids(_all_names(member.subscription for member in group.members.values()))
        assigned: dict[UUID, frozenset[int]] = {}
        for target in group.target.values():
            for topic_id, indexes in target.items():
                assigned[topic_id] = assigned.get(topic_id, frozenset()) | indexes
        return bool(group.members) and any(
            # A deleted topic stays here until that is stored, and is not assigned to anybody meanwhile.
            subscribed.get(name) == topic_id and assigned.get(topic_id) != partitions
            for topic_id, (name, partitions) in group.state_partitions.initialized.items()
        )

    async def _assign(self, group: ShareGroup, subscriptions: Mapping[str, ShareSubscription]) -> dict[str, Assignment]:
        ids = self._topics.ids(_all_names(subscriptions.values()))
        initialized = group.state_partitions.initialized
        partitions = {id_: initialized[id_].partitions for id_ in ids.values() if id_ in initialized}
        members = [
            ShareMemberSpec(
                member_id,
                frozenset(ids[name] for name in subscription.topic_names if name in ids),
                group.target_of(member_id),
            )
            for member_id, subscription in subscriptions.items()
        ]
        assign = partial(simple_assignor, members, partitions)
        is_large = len(members) + sum(map(len, partitions.values())) > ASSIGNED_ON_THE_LOOP
        return await trio.to_thread.run_sync(assign) if is_large else assign()

    # Delivery state

    def _to_initialize(
        self, group: ShareGroup, beat: ShareHeartbeat, config: ShareGroupConfig
    ) -> dict[UUID, TopicPartitions]:
        """The partitions of subscribed topics whose delivery state is neither set up nor being set up."""
        names = set(_all_names(member.subscription for member in group.members.values()))
        names |= beat.topic_names or frozenset()
        ids = self._topics.ids(names)
        counts = self._topics.partition_counts(ids.values())
        oldest_ms = self._clock.time_ms() - config.initialize_retry_interval_ms
        wanted: dict[UUID, TopicPartitions] = {}
        for name, topic_id in ids.items():
            known = group.state_partitions.initialized.get(topic_id)
            covered = frozenset() if known is None else known.partitions
            if group.initializing_since_ms.get(topic_id, oldest_ms) > oldest_ms:
                begun = group.state_partitions.initializing.get(topic_id)
                covered |= frozenset() if begun is None else begun.partitions
            left = frozenset(range(counts.get(topic_id, 0))) - covered
            if left:
                wanted[topic_id] = TopicPartitions(name, left)
        return wanted

    async def _initialize(self, group: ShareGroup, attempt: Attempt, later: frozenset[tuple[UUID, int]]) -> None:
        """Set up the delivery state of partitions, and enter in the group what came of it.

        A partition that was added to a topic (`later`) begins with its first record: what is in it is new to the group,
        which reads the topic already. Others begin where the group's settings say.
        """
        epoch = group.group_epoch
        keys = share_keys(group.group_id, attempt.wanted)
        asked = [
            Initialization(key, epoch, 0 if (key.topic_id, key.partition) in later else UNINITIALIZED_START_OFFSET)
            for key in keys
        ]

        def is_wanted(key: SharePartitionKey) -> bool:
            # Once the group is deleted, perhaps by a later coordinator, nothing may be set up for it: a group that is
            # made again under its id begins with lower epochs, and its leaders could not write.
            return not group.removed and attempt.wants(key.topic_id, key.partition)

        try:
            outcomes = await self._state.persister.initialize(asked, is_wanted)
            failed = next((error for key, error in outcomes.items() if error is not None and is_wanted(key)), None)
            async with self._locks.exclusively(group.group_id):
                # If the group has moved, this raises: it begins again there.
                now = self._shards.of(group.group_id).find(group.group_id, ShareGroup)
                known = {} if now is None else now.state_partitions.topics()
                forgotten = [key for key in keys if key.topic_id not in known]
                if now is group and attempt.wanted:
                    await self.enter(group, attempt.wanted, failed)
                if forgotten:
                    # It was deleted meanwhile, with the group or without it, and nobody else would undo this.
                    await self._state.persister.delete(forgotten)
        except CoordinatorError as error:
            logger.warning("group %s: delivery state cannot be entered: %s", group.group_id, error)
        finally:
            group.attempts.discard(attempt)

    async def enter(
        self, group: ShareGroup, wanted: Mapping[UUID, TopicPartitions], failed: CoordinatorError | None
    ) -> None:
        """Commit that partitions are set up, or that they are not."""
        known = group.state_partitions
        if failed is not None:
            fields = {"group": group.group_id, "error": str(failed)}
            logger.warning("group %s: delivery state is not set up: %s", group.group_id, failed, extra=fields)
        settled = known.begun(wanted) if failed is None else known.given_up(wanted)
        await self.commit(group, [records.state_partitions(group.group_id, settled)])
        for topic_id in wanted:
            group.initializing_since_ms.pop(topic_id, None)

    # Leaving

    async def _remove(self, group: ShareGroup, member: ShareMember) -> None:
        """Remove a member; the others get its partitions with their next heartbeats."""
        others = (other.subscription for other in group.members.values() if other is not member)
        metadata_hash = await self._topics.metadata_hash(_all_names(others))
        written = records.RECORDS.member_tombstones(group.group_id, member.member_id)
        epoch = group.group_epoch + 1
        written.append(records.group_epoch(group.group_id, epoch, metadata_hash))
        if len(group.members) == 1:
            written.append(records.target_epoch(group.group_id, epoch, 0))
        await self.commit(group, written)
        self._purgatory.signal(member)

    def _session_timeout_ms(self, group: ShareGroup, member: ShareMember) -> int:
        return self._configs.of_share_group(group.group_id).session_timeout_ms


def share_keys(group_id: str, topics: Mapping[UUID, TopicPartitions]) -> list[SharePartitionKey]:
    """The share partitions of a group's partitions."""
    return [
        SharePartitionKey(group_id, topic_id, index)
        for topic_id, (_, partitions) in topics.items()
        for index in sorted(partitions)
    ]


def _added_later(group: ShareGroup, wanted: Mapping[UUID, TopicPartitions]) -> frozenset[tuple[UUID, int]]:
    """The partitions that were added to topics of which the group has others."""
    known = group.state_partitions
    found: set[tuple[UUID, int]] = set()
    for topic_id, (_, partitions) in wanted.items():
        begun = known.initializing.get(topic_id)
        if topic_id in known.initialized:
            found.update((topic_id, index) for index in partitions)
        elif begun is not None:
            # What is begun anew is not new.
            found.update((topic_id, index) for index in partitions - begun.partitions)
    return frozenset(found)


def _all_names(subscriptions: Iterable[ShareSubscription]) -> frozenset[str]:
    return frozenset().union(*(subscription.topic_names for subscription in subscriptions))


def _subscription(former: ShareMember | None, beat: ShareHeartbeat) -> ShareSubscription:
    """The member's subscription after a heartbeat: fields that it leaves out stay as they were."""
    before = None if former is None else former.subscription
    names = beat.topic_names
    if names is None:
        names = frozenset() if before is None else before.topic_names
    rack_id = beat.rack_id if before is None or beat.rack_id is not None else before.rack_id
    return ShareSubscription(rack_id, beat.client_id, beat.client_host, names)
