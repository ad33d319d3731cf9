"""What a page says of a group, the same for all protocols."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolAssignment, parse_consumer_protocol
from ottla.server.coordinator.errors import GroupIdNotFoundError
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicMember
from ottla.server.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from ottla.server.coordinator.group.share_group import ASSIGNOR_NAME, ShareGroup, ShareMember
from ottla.server.coordinator.group.streams_group import StreamsGroup, StreamsMember
from ottla.server.coordinator.group.streams_topology import Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.broker import Broker
    from ottla.server.coordinator.group.coordinator import GroupListing


class MemberView(NamedTuple):
    """A member and what it was given: (topic, partitions) pairs in order."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    epoch: int | None
    assignment: list[tuple[str, list[int]]]

    @property
    def partition_count(self) -> int:
        return sum(len(partitions) for _, partitions in self.assignment)


class SubtopologyView(NamedTuple):
    """A part of a streams group's topology, and who runs its tasks: (task, active member, standbys)."""

    name: str
    sources: list[str]
    internal: list[str]
    tasks: list[tuple[int, str, list[str]]]


class GroupView(NamedTuple):
    """A group. `epoch` is a classic group's generation, or the group epoch of the newer protocols."""

    group_id: str
    protocol: str
    state: str
    epoch: int
    assignor: str
    leader_id: str | None
    members: list[MemberView]
    subtopologies: Sequence[SubtopologyView] = ()
    """Of a streams group."""

    def owners(self) -> dict[tuple[str, int], MemberView]:
        """Who has which partition."""
        return {
            (topic, partition): member
            for member in self.members
            for topic, partitions in member.assignment
            for partition in partitions
        }


def list_groups(broker: Broker) -> dict[str, GroupListing]:
    """Every group of this broker by id. Raises CoordinatorError while they cannot be known."""
    return {listing.group_id: listing for listing in broker.group_coordinator.list_groups()}


def describe(broker: Broker, group_id: str) -> GroupView:
    """The group as it is now. Raises CoordinatorError."""
    coordinator = broker.group_coordinator
    with suppress(GroupIdNotFoundError):
        return _consumer_view(broker, coordinator.describe_consumer_group(group_id))
    with suppress(GroupIdNotFoundError):
        return _share_view(broker, coordinator.describe_share_group(group_id))
    with suppress(GroupIdNotFoundError):
        return _streams_view(coordinator.describe_streams_group(group_id))
    return _classic_view(coordinator.describe_group(group_id))


def _classic_view(group: ClassicGroup) -> GroupView:
    return GroupView(
        group.group_id,
        "classic",
        group.state.value,
        group.generation_id,
        group.protocol_name or "",
        group.leader_id,
        [_classic_member(member) for member in group.members.values()],
    )


def _classic_member(member: ClassicMember) -> MemberView:
    try:
        assigned = parse_consumer_protocol(ConsumerProtocolAssignment, member.assignment) if member.assignment else None
    except DecodeError:
        assigned = None  # a protocol of its own, as Kafka Connect's
    assignment = (
        []
        if assigned is None
        else sorted((topic.topic, sorted(topic.partitions)) for topic in assigned.assigned_partitions)
    )
    return MemberView(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, None, assignment
    )


def _consumer_view(broker: Broker, group: ConsumerGroup) -> GroupView:
    return GroupView(
        group.group_id,
        "consumer",
        group.state.value,
        group.group_epoch,
        group.assignor,
        None,
        [_consumer_member(broker, member) for member in group.members.values()],
    )


def _share_view(broker: Broker, group: ShareGroup) -> GroupView:
    members = [_share_member(broker, member) for member in group.members.values()]
    return GroupView(group.group_id, "share", group.state.value, group.group_epoch, ASSIGNOR_NAME, None, members)


def _share_member(broker: Broker, member: ShareMember) -> MemberView:
    image, subscription = broker.metadata, member.subscription
    assignment = sorted(
        (topic.name, sorted(partitions))
        for topic_id, partitions in member.current.assigned.items()
        if (topic := image.topic_by_id(topic_id)) is not None
    )
    return MemberView(
        member.member_id, None, subscription.client_id, subscription.client_host, member.current.epoch, assignment
    )


def _streams_view(group: StreamsGroup) -> GroupView:
    members = [_streams_member(group, member) for member in group.members.values()]
    topology = group.topology
    parts = [] if topology is None else [_subtopology(group, topology, name) for name in sorted(topology.subtopologies)]
    return GroupView(
        group.group_id, "streams", group.state.value, group.group_epoch, "sticky", None, members, subtopologies=parts
    )


def _streams_member(group: StreamsGroup, member: StreamsMember) -> MemberView:
    """What its active tasks read."""
    about = member.subscription
    active = member.current.assigned.active
    sources = {} if group.topology is None else group.topology.source_topics
    assignment = sorted((topic, sorted(active[name])) for topic, name in sources.items() if name in active)
    return MemberView(member.member_id, None, about.client_id, about.client_host, member.current.epoch, assignment)


def _subtopology(group: StreamsGroup, topology: Topology, name: str) -> SubtopologyView:
    part = topology.subtopologies[name]
    active: dict[int, str] = {}
    standbys: dict[int, list[str]] = {}
    for member in group.members.values():
        active |= dict.fromkeys(member.current.assigned.active.get(name, ()), member.member_id)
        for index in member.current.assigned.standby.get(name, ()):
            standbys.setdefault(index, []).append(member.member_id)
    internal = [topic.name for topic in (*part.repartition_source_topics, *part.state_changelog_topics)]
    tasks = [(index, active.get(index, ""), sorted(standbys.get(index, ()))) for index in sorted({*active, *standbys})]
    return SubtopologyView(name, list(part.source_topics), internal, tasks)


def _consumer_member(broker: Broker, member: ConsumerMember) -> MemberView:
    image = broker.metadata
    assignment = sorted(
        (topic.name, sorted(partitions))
        for topic_id, partitions in member.current.assigned.items()
        if (topic := image.topic_by_id(topic_id)) is not None
    )
    about = member.subscription
    return MemberView(
        member.member_id, about.instance_id, about.client_id, about.client_host, member.current.epoch, assignment
    )
