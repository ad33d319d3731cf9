"""Members that speak the classic protocol in a group of the consumer protocol: the middle of a migration (KIP-848).

The coordinator computes the assignment, so no classic member leads: a JoinGroup takes the member's next step and
answers with its member epoch as the generation, the SyncGroup after it hands out what it is assigned now. A heartbeat
says REBALANCE_IN_PROGRESS when there is a next step to take. A member says what it has revoked by listing what it still
owns in its next subscription; an eager one owns nothing when it joins.

Kafka's counterpart is GroupMetadataManager, classicGroup…ToConsumerGroup.
"""

import uuid

from ottla.coordinator.errors import (
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.assignment import Assignment
from ottla.coordinator.group.classic.consumer_protocol import PROTOCOL_TYPE, parse_subscription
from ottla.coordinator.group.classic.member import JoinResult, SyncResult
from ottla.coordinator.group.classic.protocol import JoinRequest, SyncRequest
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import (
    ClassicSide,
    ConsumerMember,
    Current,
    MemberState,
    Subscription,
)
from ottla.coordinator.group.consumer.protocol import ConsumerProtocol
from ottla.coordinator.group.migration.policy import MigrationPolicy
from ottla.coordinator.group.topics import GroupTopics
from ottla.kproto.internal_records.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    build_consumer_protocol,
)


class ClassicMembers:
    """Runs the classic members of all groups of the consumer protocol on one broker."""

    def __init__(self, consumer: ConsumerProtocol, topics: GroupTopics, policy: MigrationPolicy) -> None:
        self._consumer = consumer
        self._topics = topics
        self._policy = policy

    async def join(self, group: ConsumerGroup, request: JoinRequest) -> JoinResult:
        """JoinGroup: take the member's next step, or raise what tells it to do otherwise. The caller holds the lock."""
        if self._policy is MigrationPolicy.DISABLED:
            raise InconsistentGroupProtocolError(
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the group "
                "migration is disabled."
            )
        member_id = request.member_id or str(uuid.uuid4())
        self._check(group, member_id, request)
        if not request.member_id and request.known_member_id_required:
            raise MemberIdRequiredError(member_id)
        former = _find(group, request)
        was_native = former is not None and former.classic is None
        said = parse_subscription(request.protocols[0].metadata)
        if said is None:
            raise InconsistentGroupProtocolError("the consumer's subscription cannot be read")
        if former is None or former.member_id != member_id or former.has_left:
            start = Current() if former is None else former.current.rejoined()
        else:
            start = former.current
        subscription = _subscription(request, said, former)
        member = await self._consumer.step(
            group, member_id, former, subscription, start, self._owned(said), request.may_describe
        )
        self._consumer.prolong(group, member)
        member.expect_nothing()
        self._consumer.expect(member)  # its SyncGroup
        result = JoinResult(member_id, member.current.epoch, PROTOCOL_TYPE, request.protocols[0].name, leader="")
        if was_native:
            await self._consumer.settle_protocol(group)
        return result

    def _check(self, group: ConsumerGroup, member_id: str, request: JoinRequest) -> None:
        full = len(group.members) >= self._consumer.config(group.group_id).max_size
        takes_a_place = member_id in group.members or group.holder(request.group_instance_id) is not None
        if full and not takes_a_place:
            raise GroupMaxSizeReachedError(f"group {group.group_id} has {len(group.members)} members")
        names = [name for name, _ in request.protocols]
        if request.protocol_type != PROTOCOL_TYPE or not group.supports_classic(names):
            raise InconsistentGroupProtocolError(f"no protocol in common with group {group.group_id}")

    def _owned(self, said: ConsumerProtocolSubscription) -> Assignment:
        ids = self._topics.ids(owned.topic for owned in said.owned_partitions)
        return {
            ids[owned.topic]: frozenset(owned.partitions)
            for owned in said.owned_partitions
            if owned.topic in ids and owned.partitions
        }

    async def sync(self, group: ConsumerGroup, request: SyncRequest) -> SyncResult:
        """SyncGroup: what the member is assigned now. The coordinator assigns, whatever the request assigns."""
        member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        own_name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, own_name):
            raise InconsistentGroupProtocolError(f"{request.member_id} joined with {own_name} of type {PROTOCOL_TYPE}")
        if group.target_epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._consumer.expect(member)
            raise RebalanceInProgressError(f"group {group.group_id} rebalances")
        member.expect_nothing()
        self._consumer.prolong(group, member)
        return SyncResult(
            request.protocol_type,
            request.protocol_name,
            serialize_assignment(member.current.assigned, metadata, self._topics),
        )

    def heartbeat(
        self, group: ConsumerGroup, *, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """Heartbeat: prolong the session. Raises RebalanceInProgressError while there is a next step to take."""
        member, _ = _classic_member(group, member_id, group_instance_id, generation_id)
        self._consumer.prolong(group, member)
        current = member.current
        if (
            current.epoch < group.target_epoch
            or self._consumer.lacks_target(group)
            or current.state is MemberState.UNREVOKED_PARTITIONS
            or (current.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
        ):
            self._consumer.expect(member)
            raise RebalanceInProgressError(f"group {group.group_id} rebalances")

    async def leave(self, group: ConsumerGroup, member_id: str, group_instance_id: str | None) -> str:
        """LeaveGroup: as `ConsumerProtocol.expel`, for members of either protocol."""
        return await self._consumer.expel(group, member_id, group_instance_id)


def serialize_assignment(assignment: Assignment, subscription: bytes, topics: GroupTopics) -> bytes:
    """An assignment as a classic consumer reads it, in its subscription's version, without topics that are gone."""
    names = topics.names(assignment)
    partitions = [
        AssignedTopicPartition(topic=names[topic_id], partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
        if topic_id in names
    ]
    version = int.from_bytes(subscription[:2], "big", signed=True)
    newest = ConsumerProtocolAssignment.VERSIONS.highest
    return build_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=partitions), min(version, newest))


def _find(group: ConsumerGroup, request: JoinRequest) -> ConsumerMember | None:
    """The member that joins again, or whose place a static one takes; None for a new one."""
    if request.group_instance_id is None:
        return group.members.get(request.member_id)
    if request.member_id:
        return group.find_static(request.member_id, request.group_instance_id)
    return group.holder(request.group_instance_id)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerMember, ClassicSide]:
    member = group.find_static(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberIdError(f"{member_id} speaks the consumer protocol")
    if member.current.epoch != generation_id:
        raise IllegalGenerationError(f"{member_id} is at generation {member.current.epoch}, not {generation_id}")
    return member, member.classic


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a partition of the member's target still belongs to another member."""
    assigned = member.current.assigned
    return any(
        group.owners.get((topic_id, index), member.member_id) != member.member_id
        for topic_id, indexes in group.target_of(member.member_id).items()
        for index in indexes - assigned.get(topic_id, frozenset())
    )


def _subscription(
    request: JoinRequest, said: ConsumerProtocolSubscription, former: ConsumerMember | None
) -> Subscription:
    """What the member asks for now. One that does not name its instance, as in old versions of JoinGroup, keeps it."""
    instance_id = request.group_instance_id
    if instance_id is None and former is not None:
        instance_id = former.subscription.instance_id
    return Subscription(
        instance_id=instance_id,
        rack_id=said.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=frozenset(said.topics),
        topic_regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicSide(request.session_timeout_ms, tuple(request.protocols)),
    )
