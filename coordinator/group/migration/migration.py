"""Online migration of a group with members between the classic and the consumer protocol (KIP-848).

Upgrade: when a member of the consumer protocol joins a classic group of consumers, the group becomes one of the
consumer protocol. Its generation is the epoch, its assignments are target and current ones, and its members stay
classic members in it (`classic_members.py`). Downgrade: when the last member of the consumer protocol leaves while
classic ones remain, the group is a classic one again and rebalances. `group.consumer.migration.policy` says which of
the two are allowed.

A conversion is a single batch of records: whatever fails or crashes, the group is one or the other. While an upgrade is
being stored the classic group is dead: its members find the coordinator again and go on.

Kafka's counterpart is GroupMetadataManager, convertToConsumerGroup and convertToClassicGroup.
"""

import logging
from typing import Final

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    GroupIdNotFoundError,
    NotCoordinatorError,
    RebalanceInProgressError,
)
from ottla.coordinator.group.assignment import EMPTY_ASSIGNMENT, Assignment
from ottla.coordinator.group.classic.consumer_protocol import PROTOCOL_TYPE, parse_subscription
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.member import ClassicMember
from ottla.coordinator.group.classic.protocol import ClassicProtocol
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import ClassicSide, ConsumerMember, Current, Subscription
from ottla.coordinator.group.consumer.protocol import ConsumerConfigs
from ottla.coordinator.group.migration.classic_members import serialize_assignment
from ottla.coordinator.group.migration.policy import MigrationPolicy
from ottla.coordinator.group.modern.protocol import GroupServices, end_sessions
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolAssignment, parse_consumer_protocol

logger = logging.getLogger(__name__)

_CUSTOM_ASSIGNOR: Final = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade"
)
"""The user data that the assignor has given its members would be lost."""


class Migration:
    """Converts the groups of one broker."""

    def __init__(
        self,
        policy: MigrationPolicy,
        *,
        classic: ClassicProtocol,
        classic_max_size: int,
        configs: ConsumerConfigs,
        services: GroupServices,
    ) -> None:
        self._policy = policy
        self._classic = classic
        self._classic_max_size = classic_max_size
        self._configs = configs
        self._topics = services.topics
        self._clock = services.clock
        self._shards = services.shards
        self._purgatory = services.purgatory

    async def upgrade(self, group: ClassicGroup) -> ConsumerGroup:
        """Turn a classic group with members into one of the consumer protocol, whose sessions do not run yet. The
        caller holds the group's lock.

        Raises GroupIdNotFoundError if it cannot or must not become one; any error leaves it as it was.
        """
        group_id = group.group_id
        members = self._consumer_members(group)
        before = group.metadata_record({each.member_id: each.assignment for each in group.members.values()})
        self._classic.close(group, RebalanceInProgressError(f"group {group_id} changes its protocol"))
        try:
            with trio.CancelScope(shield=True):
                await self._shards.write(group_id, await self._upgrade_records(group, members))
        except CoordinatorError:
            self._shards.of(group_id).restore(before)
            raise
        upgraded = self._shards.of(group_id).find(group_id, ConsumerGroup)
        if upgraded is None:
            raise NotCoordinatorError(f"group {group_id} moved away")
        return upgraded

    def _consumer_members(self, group: ClassicGroup) -> list[ConsumerMember]:
        """The members as those of a consumer group. Raises GroupIdNotFoundError with the sentence that Kafka has."""
        if group.is_in(ClassicState.DEAD):
            raise GroupIdNotFoundError(f"Group {group.group_id} is not a consumer group.")
        if not self._policy.allows_upgrade:
            raise _not_upgraded(group, "online upgrade is disabled")
        if group.protocol_type != PROTOCOL_TYPE:
            raise _not_upgraded(group, "the group does not use the consumer embedded protocol")
        if len(group.members) > self._configs.of_consumer_group(group.group_id).max_size:
            raise _not_upgraded(group, "the group size exceeds the consumer group maximum size")
        try:
            return [self._consumer_member(group, member) for member in group.members.values()]
        except DecodeError as error:
            raise _not_upgraded(group, "the embedded consumer protocol is malformed") from error

    async def _upgrade_records(self, group: ClassicGroup, members: list[ConsumerMember]) -> list[CoordinatorRecord]:
        group_id, epoch = group.group_id, max(1, group.generation_id)
        names = frozenset().union(*(member.subscription.topic_names for member in members))
        return [
            *group.tombstones(),
            *(consumer_records.member_subscription(group_id, each.member_id, each.subscription) for each in members),
            consumer_records.group_epoch(group_id, epoch, await self._topics.metadata_hash(names)),
            *(consumer_records.target_assignment(group_id, each.member_id, each.current.assigned) for each in members),
            # Without a time, so that the member whose join caused this gets a new target at once.
            consumer_records.target_epoch(group_id, epoch, 0),
            *(consumer_records.current_assignment(group_id, each.member_id, each.current) for each in members),
        ]

    def _consumer_member(self, group: ClassicGroup, member: ClassicMember) -> ConsumerMember:
        """A classic member as a member of the consumer group, with what the last generation assigned to it."""
        said = parse_subscription(member.metadata(group.protocol_name or group.select_protocol()))
        if said is None:
            raise DecodeError(f"the subscription of {member.member_id} cannot be read")
        subscription = Subscription(
            instance_id=member.group_instance_id,
            rack_id=said.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(said.topics),
            topic_regex=None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicSide(member.session_timeout_ms, member.protocols),
        )
        epoch = max(1, group.generation_id)
        assigned = self._assigned(group, member.assignment)
        epochs = {(topic_id, index): epoch for topic_id, indexes in assigned.items() for index in indexes}
        current = Current(epoch, epoch, assigned=assigned, epochs=epochs)
        return ConsumerMember(member.member_id, subscription, current)

    def _assigned(self, group: ClassicGroup, assignment: bytes) -> Assignment:
        if not assignment:
            return EMPTY_ASSIGNMENT
        said = parse_consumer_protocol(ConsumerProtocolAssignment, assignment)
        if said.user_data:
            raise _not_upgraded(group, _CUSTOM_ASSIGNOR)
        topics = said.assigned_partitions
        ids = self._topics.ids(topic.topic for topic in topics)
        return {
            ids[topic.topic]: frozenset(topic.partitions) for topic in topics if topic.topic in ids and topic.partitions
        }

    async def downgrade(self, group: ConsumerGroup, leaving: ConsumerMember | None = None) -> bool:
        """If nobody but a member that is leaving speaks the consumer protocol, turn the group into a classic one.

        Returns whether that was done: the policy must allow it. The caller holds the group's lock. Raises
        CoordinatorError, and then the group is as it was.
        """
        remaining = [member for member in group.members.values() if member is not leaving]
        if not remaining or any(member.classic is None for member in remaining):
            return False
        if not self._policy.allows_downgrade or len(remaining) > self._classic_max_size:
            return False
        is_outdated = group.target_epoch < group.group_epoch
        classic = await self._convert(group, remaining)
        if leaving is not None or is_outdated:
            self._classic.rebalance(classic)
        return True

    async def turn_back(self, group: ConsumerGroup) -> None:
        """Undo an upgrade for a member that did not join: whatever the policy, nobody speaks the consumer protocol.

        If that is refused, the group stays as it is: its classic members are served in it. The caller holds the group's
        lock.
        """
        try:
            await self._convert(group, list(group.members.values()))
        except CoordinatorError as error:
            keys = {"group": group.group_id, "error": str(error)}
            logger.warning("group %s is not turned back into a classic one: %s", group.group_id, error, extra=keys)

    async def _convert(self, group: ConsumerGroup, remaining: list[ConsumerMember]) -> ClassicGroup:
        """Turn the group into a classic one with these members, which all speak the classic protocol."""
        former = list(group.members.values())
        classic = self._classic_group(group, remaining)
        assignments = {each.member_id: each.assignment for each in classic.members.values()}
        written = [*group.tombstones(), classic.metadata_record(assignments)]
        with trio.CancelScope(shield=True), self._shards.of(group.group_id).reserve_id(classic):
            await self._shards.write(group.group_id, written)
        end_sessions(self._purgatory, former)
        if self._shards.of(group.group_id).groups.get(group.group_id) is not classic:
            raise NotCoordinatorError(f"group {group.group_id} moved away")
        self._classic.resume(classic)
        return classic

    def _classic_group(self, group: ConsumerGroup, members: list[ConsumerMember]) -> ClassicGroup:
        """The group with these members as a stable classic one: the target is its assignment."""
        converted = []
        for member in members:
            assert member.classic is not None
            converted.append(
                ClassicMember(
                    member.member_id,
                    group_instance_id=member.subscription.instance_id,
                    client_id=member.subscription.client_id,
                    client_host=member.subscription.client_host,
                    rebalance_timeout_ms=member.subscription.rebalance_timeout_ms,
                    session_timeout_ms=member.classic.session_timeout_ms,
                    protocols=member.classic.protocols,
                    assignment=serialize_assignment(
                        group.target_of(member.member_id), member.classic.protocols[0].metadata, self._topics
                    ),
                )
            )
        return ClassicGroup.converted(
            group.group_id, converted, generation_id=group.group_epoch, now_ms=self._clock.time_ms()
        )


def _not_upgraded(group: ClassicGroup, why: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.")
