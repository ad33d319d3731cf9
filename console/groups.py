"""A group as the pages show it: the same for all protocols, and wherever its coordinator is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.admin.group_state import KINDS, Group, Subtopology
from ottla.client.admin.topology_description import Part, described_parts, drawn, without_topics
from ottla.client.errors import BrokerError
from ottla.console.messages.readable import led_elsewhere
from ottla.console.nodes import NodeError, ask, ask_each, other_nodes
from ottla.coordinator.errors import CoordinatorError, GroupIdNotFoundError
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.member import ClassicMember
from ottla.coordinator.group.config import OFFSETS_TOPIC
from ottla.coordinator.group.consumer.assignors import assignor_names
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerMember
from ottla.coordinator.group.listing import GroupListing
from ottla.coordinator.group.share.group import ASSIGNOR_NAME, ShareGroup
from ottla.coordinator.group.share.member import ShareMember
from ottla.coordinator.group.streams.assignor import ASSIGNOR_NAME as STREAMS_ASSIGNOR_NAME
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.member import StreamsMember
from ottla.coordinator.group.streams.topology import Topology
from ottla.kproto.errors import DecodeError, ErrorCode
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolAssignment, parse_consumer_protocol
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.runtime.time_slice import TimeSlice
from ottla.server.apis.groups.streams_descriptions import described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.broker import Broker

MAX_DRAWN_LINES: Final = 500


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
    """A group. `epoch` is a classic group's generation, or the group epoch of the newer protocols.

    For a classic group on another node neither that nor the leader is known, because DescribeGroups does not say.
    """

    group_id: str
    protocol: str
    state: str
    epoch: int | None
    assignor: str
    leader_id: str | None
    members: list[MemberView]
    subtopologies: Sequence[SubtopologyView] = ()
    """Only for a streams group, as is `topology_epoch`."""
    target_epoch: int | None = None
    """The epoch of the assignment that members are on their way to; None for a classic group."""
    topology_epoch: int | None = None
    description: Sequence[Part] = ()
    """How the topology is wired, if somebody has said so."""

    def seen_by(self, may_describe: Callable[[str], bool]) -> GroupView:
        """The same without the names of topics that a visitor may not describe."""
        members = [
            member._replace(assignment=[given for given in member.assignment if may_describe(given[0])])
            for member in self.members
        ]
        parts = [
            part._replace(
                sources=[topic for topic in part.sources if may_describe(topic)],
                internal=[topic for topic in part.internal if may_describe(topic)],
            )
            for part in self.subtopologies
        ]
        description = without_topics(self.description, may_describe)
        return self._replace(members=members, subtopologies=parts, description=description)

    def drawings(self) -> list[tuple[str, list[str]]]:
        """How each part of the topology is wired: its name, and lines, no more than a page can show."""
        left, found = MAX_DRAWN_LINES, []
        for part in self.description:
            lines = drawn(part)[:left]
            left -= len(lines)
            if lines:
                found.append(("Global store" if part.name is None else f"Subtopology {part.name}", lines))
        return found

    def owners(self) -> dict[tuple[str, int], MemberView]:
        """The owner of each partition."""
        return {
            (topic, partition): member
            for member in self.members
            for topic, partitions in member.assignment
            for partition in partitions
        }


class Listings(NamedTuple):
    """The groups of all nodes by id, and a sentence for each node that did not list its own."""

    groups: dict[str, GroupListing]
    problems: list[str]


async def list_groups(broker: Broker) -> Listings:
    """Every group of the cluster."""
    found = Listings({}, [])
    try:
        found.groups.update((each.group_id, each) for each in broker.group_coordinator.list_groups())
    except CoordinatorError as error:
        found.problems.append(str(error))
    answers = await ask_each(broker, {node_id: ListGroupsRequest() for node_id in other_nodes(broker)})
    found.problems.extend(answers.problems)
    slices = TimeSlice()
    for node_id, answer in answers.by_node.items():
        if answer.error_code:
            found.problems.append(f"Node {node_id} cannot list its groups yet: {ErrorCode.name_of(answer.error_code)}.")
        for each in answer.groups:
            listing = GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type)
            found.groups.setdefault(each.group_id, listing)
            if slices.is_over:
                await slices.maybe_yield()
    return found


def coordinator_of(broker: Broker, group_id: str) -> int | None:
    """The other node that coordinates a group; None if this one does, or nobody."""
    topic = broker.metadata.topic(OFFSETS_TOPIC)
    partition = broker.group_coordinator.partition_for(group_id)
    return led_elsewhere(broker, topic, partition) if topic is not None else None


async def describe(broker: Broker, group_id: str) -> GroupView:
    """The group as it is now. Raises CoordinatorError or NodeError."""
    node_id = coordinator_of(broker, group_id)
    if node_id is not None:
        return await _describe_there(broker, node_id, group_id)
    coordinator = broker.group_coordinator
    with suppress(GroupIdNotFoundError):
        return _consumer_view(broker, coordinator.consumer_groups.describe(group_id))
    with suppress(GroupIdNotFoundError):
        return _share_view(broker, coordinator.share_groups.describe(group_id))
    with suppress(GroupIdNotFoundError):
        return await _streams_view(coordinator.streams_groups.describe(group_id))
    return _classic_view(coordinator.classic_groups.describe(group_id))


async def _describe_there(broker: Broker, node_id: int, group_id: str) -> GroupView:
    """The group as its coordinator describes it. For a group of another protocol, it says there is none."""
    for kind in KINDS:
        answer = await ask(broker, node_id, kind.request(group_id, kind.api.valid_versions.highest))
        try:
            group = kind.group_in(answer.groups[0], node_id)
        except BrokerError as error:
            raise NodeError(f"Node {node_id} does not describe group {group_id}: {error}.") from error
        if group is not None:
            return _view_of(group)
    raise GroupIdNotFoundError(f"there is no group {group_id}")


def _view_of(group: Group) -> GroupView:
    members = []
    for member in group.members:
        topics: dict[str, list[int]] = {}
        for where in member.assignment:
            topics.setdefault(where.topic, []).append(where.partition)
        members.append(
            MemberView(
                member.member_id, member.instance_id, member.client_id, member.host, member.epoch, list(topics.items())
            )
        )
    parts = [_subtopology_there(group, part) for part in sorted(group.topology, key=lambda part: part.name)]
    return GroupView(
        group.group_id,
        group.group_type,
        group.state,
        group.epoch,
        group.assignor,
        None,
        members,
        parts,
        group.target_epoch,
        group.topology_epoch,
        group.description or (),
    )


def _subtopology_there(group: Group, part: Subtopology) -> SubtopologyView:
    active: dict[int, str] = {}
    standbys: dict[int, list[str]] = {}
    for member in group.members:
        active |= dict.fromkeys(member.tasks.get("active", {}).get(part.name, ()), member.member_id)
        for index in member.tasks.get("standby", {}).get(part.name, ()):
            standbys.setdefault(index, []).append(member.member_id)
    tasks = [(index, active.get(index, ""), sorted(standbys.get(index, ()))) for index in sorted({*active, *standbys})]
    return SubtopologyView(part.name, part.sources, [*part.repartition_sources, *part.changelogs], tasks)


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
        assigned = None  # a protocol of its own, such as Kafka Connect's
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
        group.assignor(assignor_names(broker.config.group_consumer_assignors)),
        None,
        [_consumer_member(broker, member) for member in group.members.values()],
        target_epoch=group.target_epoch,
    )


def _share_view(broker: Broker, group: ShareGroup) -> GroupView:
    members = [_share_member(broker, member) for member in group.members.values()]
    return GroupView(
        group.group_id,
        "share",
        group.state.value,
        group.group_epoch,
        ASSIGNOR_NAME,
        None,
        members,
        target_epoch=group.target_epoch,
    )


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


async def _streams_view(group: StreamsGroup) -> GroupView:
    _, description = await described(group.description)
    members = [_streams_member(group, member) for member in group.members.values()]
    topology = group.topology
    parts = [] if topology is None else [_subtopology(group, topology, name) for name in sorted(topology.subtopologies)]
    return GroupView(
        group.group_id,
        "streams",
        group.state.value,
        group.group_epoch,
        STREAMS_ASSIGNOR_NAME,
        None,
        members,
        parts,
        group.target_epoch,
        None if topology is None else topology.epoch,
        () if description is None else described_parts(description),
    )


def _streams_member(group: StreamsGroup, member: StreamsMember) -> MemberView:
    """A streams member, with the partitions that its active tasks read."""
    about = member.subscription
    active = member.current.assigned.active
    sources = {} if group.topology is None else group.topology.source_topics
    assignment = sorted((topic, sorted(active[name])) for topic, name in sources.items() if name in active)
    return MemberView(
        member.member_id, about.instance_id, about.client_id, about.client_host, member.current.epoch, assignment
    )


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
