"""The state of a group: its members, its offsets and their lag.

Classic groups, groups of the consumer protocol (KIP-848), share groups (KIP-932) and streams groups (KIP-1071) come out
as the same values. Each request goes to the group's coordinator and is repeated while that is loading or moving, no
longer than the timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.admin.topology_description import Part, described_parts
from ottla.client.client import Client
from ottla.client.connection import BrokerConnection
from ottla.client.errors import BrokerError, UnsupportedVersionError
from ottla.client.offsets import TopicPartition
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import COORDINATOR_NOT_READY, DecodeError, ErrorCode
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolAssignment, parse_consumer_protocol
from ottla.kproto.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.kproto.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.kproto.messages.groups.streams_group_describe import StreamsGroupDescribeRequest
from ottla.kproto.messages.share.share_group_describe import ShareGroupDescribeRequest
from ottla.kproto.schema import Request

#: The type of a share group.
SHARE: Final = "share"
#: The type of a streams group.
STREAMS: Final = "streams"
_STREAMS_ASSIGNOR: Final = "sticky"

# These name topics, and one group at a time: every broker has them, and nothing later is needed here.
_FETCH_BY_NAME: Final = 7
_FIND_ONE: Final = 3
_WITH_DESCRIPTIONS: Final = 1

#: What is said of a group of another kind, or of none. Kafka 3.9 serves ConsumerGroupDescribe, and answers
#: UNSUPPORTED_VERSION unless its new groups are enabled.
_NOT_OF_THIS_KIND: Final = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
_DEAD: Final = "Dead"
"""The state in DescribeGroups before version 6 of a group that does not exist."""

_RETRY_SECONDS: Final = 0.1


@dataclass(slots=True)
class Member:
    """A member with the partitions that it has now."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    """None for a classic member."""
    assignment: list[TopicPartition]
    """Of a streams group what its active tasks read."""
    tasks: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """Of a streams group: by role (active, standby, warmup) and subtopology."""


@dataclass(slots=True)
class Subtopology:
    """A part of a streams group's topology: what it reads, and the topics that the broker made for it."""

    name: str
    sources: list[str]
    repartition_sources: list[str]
    changelogs: list[str]


@dataclass(slots=True)
class Group:
    """A group with its members. `epoch` is that of its newer protocol, None for a classic group."""

    group_id: str
    group_type: str
    state: str
    assignor: str
    coordinator: int
    epoch: int | None = None
    target_epoch: int | None = None
    """The epoch of the assignment that members are on their way to; None for a classic group."""
    topology_epoch: int | None = None
    """Of a streams group."""
    members: list[Member] = field(default_factory=list)
    topology: list[Subtopology] = field(default_factory=list)
    """Of a streams group."""
    description: list[Part] | None = None
    """How a streams group's topology is wired; None if nobody has said so."""


class Coordinator:
    """Asks the coordinators of groups."""

    def __init__(self, client: Client, timeout_seconds: float) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds

    def call(self, group_id: str, request: Request, code: Callable[[Any], int], *, at_most: int = 32767) -> Any:
        """The answer of the group's coordinator; `code` takes the answer's error code, which is the caller's to judge
        unless it says that the coordinator is not ready."""
        return self._repeat(lambda: self.connection(group_id).call(request, at_most=at_most), code)

    def node_id(self, group_id: str) -> int:
        """The broker that coordinates the group."""
        request = FindCoordinatorRequest(key=group_id)
        answer = self._repeat(
            lambda: self._client.call(request, at_most=_FIND_ONE), lambda answer: int(answer.error_code)
        )
        if answer.error_code:
            raise BrokerError(answer.error_code, answer.error_message, what=f"group {group_id}")
        self._client.metadata([])
        return int(answer.node_id)

    def connection(self, group_id: str) -> BrokerConnection:
        return self._client.broker(self.node_id(group_id))

    def _repeat(self, ask: Callable[[], Any], code: Callable[[Any], int]) -> Any:
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            answer = ask()
            if code(answer) not in COORDINATOR_NOT_READY or time.monotonic() > deadline:
                return answer
            time.sleep(_RETRY_SECONDS)


def find_group(coordinator: Coordinator, group_id: str) -> Group | None:
    """The group as it is now, whichever protocol it uses; None if there is none."""
    for kind in KINDS:
        try:
            version = coordinator.connection(group_id).version(kind.api)
        except UnsupportedVersionError:
            continue  # The broker is older than this protocol.
        described = coordinator.call(
            group_id, kind.request(group_id, version), lambda answer: int(answer.groups[0].error_code)
        ).groups[0]
        group = kind.group_in(described, coordinator.node_id(group_id))
        if group is not None:
            return group
    return None


def classic_group(described: Any, node_id: int) -> Group:
    """A group from DescribeGroups, which `node_id` coordinates."""
    group = Group(described.group_id, "classic", described.group_state, described.protocol_data, node_id)
    for member in described.members:
        assignment = _classic_assignment(bytes(member.member_assignment))
        group.members.append(
            Member(member.member_id, member.group_instance_id, member.client_id, member.client_host, None, assignment)
        )
    return group


def _classic_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions in a consumer's assignment; none if the group is not one of consumers."""
    try:
        assigned = parse_consumer_protocol(ConsumerProtocolAssignment, data) if data else None
    except DecodeError:
        return []
    topics = assigned.assigned_partitions if assigned is not None else ()
    return sorted(TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions)


def consumer_group(described: Any, node_id: int) -> Group:
    """A group from ConsumerGroupDescribe, which `node_id` coordinates."""
    return _modern_group(described, "consumer", node_id, [member.instance_id for member in described.members])


def share_group(described: Any, node_id: int) -> Group:
    """A group from ShareGroupDescribe, which `node_id` coordinates. Its members are never static."""
    return _modern_group(described, SHARE, node_id, [None] * len(described.members))


def _modern_group(described: Any, kind: str, node_id: int, instance_ids: Sequence[str | None]) -> Group:
    group = Group(
        described.group_id,
        kind,
        described.group_state,
        described.assignor_name,
        node_id,
        described.group_epoch,
        described.assignment_epoch,
    )
    for member, instance_id in zip(described.members, instance_ids, strict=True):
        group.members.append(
            Member(
                member.member_id,
                instance_id,
                member.client_id,
                member.client_host,
                member.member_epoch,
                _assignment(member),
            )
        )
    return group


def _assignment(member: Any) -> list[TopicPartition]:
    topics = member.assignment.topic_partitions
    return sorted(TopicPartition(topic.topic_name, index) for topic in topics for index in topic.partitions)


def streams_group(described: Any, node_id: int) -> Group:
    """A group from StreamsGroupDescribe, which `node_id` coordinates."""
    group = Group(
        described.group_id,
        STREAMS,
        described.group_state,
        described.assignor_name or _STREAMS_ASSIGNOR,
        node_id,
        described.group_epoch,
        described.assignment_epoch,
        None if described.topology is None else described.topology.epoch,
    )
    if described.topology_description is not None:
        group.description = described_parts(described.topology_description)
    for part in described.topology.subtopologies or () if described.topology is not None else ():
        repartition = [topic.name for topic in part.repartition_source_topics]
        changelogs = [topic.name for topic in part.state_changelog_topics]
        group.topology.append(Subtopology(part.subtopology_id, list(part.source_topics), repartition, changelogs))
    sources = {part.name: [*part.sources, *part.repartition_sources] for part in group.topology}
    for member in described.members:
        given = member.assignment
        tasks = {
            role: {each.subtopology_id: list(each.partitions) for each in listed}
            for role, listed in (
                ("active", given.active_tasks),
                ("standby", given.standby_tasks),
                ("warmup", given.warmup_tasks),
            )
            if listed
        }
        assignment = sorted(
            TopicPartition(topic, index)
            for name, indexes in tasks.get("active", {}).items()
            for topic in sources.get(name, ())
            for index in indexes
        )
        group.members.append(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.member_epoch,
                assignment,
                tasks,
            )
        )
    return group


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of group is described: `request` takes the group's id and the version that will be sent, `read` the
    group in the answer and its coordinator."""

    api: ApiKey
    request: Callable[[str, int], Request]
    read: Callable[[Any, int], Group]

    def group_in(self, described: Any, node_id: int) -> Group | None:
        """The group that `node_id` described; None if it has none of this kind. Raises BrokerError."""
        if not described.error_code and described.group_state != _DEAD:
            return self.read(described, node_id)
        if described.error_code in _NOT_OF_THIS_KIND:
            return None
        message = getattr(described, "error_message", None)  # DescribeGroups has none before version 6
        raise BrokerError(described.error_code, message, what=f"group {described.group_id}")


KINDS: Final = (
    Kind(ApiKey.DESCRIBE_GROUPS, lambda group_id, _: DescribeGroupsRequest(groups=[group_id]), classic_group),
    Kind(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        lambda group_id, _: ConsumerGroupDescribeRequest(group_ids=[group_id]),
        consumer_group,
    ),
    Kind(ApiKey.SHARE_GROUP_DESCRIBE, lambda group_id, _: ShareGroupDescribeRequest(group_ids=[group_id]), share_group),
    Kind(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        lambda group_id, version: StreamsGroupDescribeRequest(
            group_ids=[group_id], include_topology_description=version >= _WITH_DESCRIPTIONS
        ),
        streams_group,
    ),
)
"""A coordinator answers for a group of another kind as if there were none, so each kind is asked for in turn."""


def committed_offsets(coordinator: Coordinator, group_id: str) -> dict[TopicPartition, int]:
    """All that the group has committed."""
    answer = coordinator.call(
        group_id,
        OffsetFetchRequest(group_id=group_id, topics=None),
        lambda answer: int(answer.error_code),
        at_most=_FETCH_BY_NAME,
    )
    if answer.error_code:
        raise BrokerError(answer.error_code, what=f"offsets of group {group_id}")
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }
