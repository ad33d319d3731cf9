"""StreamsGroupDescribe (89): epochs, topology and members of streams groups, with each member's tasks (KIP-1071).

A group that does not exist, or is of another type, is GROUP_ID_NOT_FOUND. The topology is that with the partitions that
were decided on, once it can run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.streams.assignor import ASSIGNOR_NAME
from ottla.coordinator.group.streams.description import DescriptionStatus
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.groups.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.declaration import Api
from ottla.server.apis.groups.group_protocols import GroupProtocol
from ottla.server.apis.groups.modern_groups import Description, describe
from ottla.server.apis.groups.streams_descriptions import described
from ottla.server.apis.groups.streams_groups import topics_of
from ottla.server.apis.rules import Each, Rule, itself

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.streams.assignor import Task, Tasks, TaskSet
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.member import StreamsMember
    from ottla.coordinator.group.streams.topology import ConfiguredSubtopology, InternalTopic
    from ottla.kproto.internal_records import streams_group as record
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.STREAMS_GROUP_DESCRIBE, Rule(each=Each(AclOperation.DESCRIBE, "group_ids", itself(AclResource.GROUP))))


async def handle(request: StreamsGroupDescribeRequest, context: RequestContext) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=await describe(request, _Description(context, includes_topology=request.include_topology_description))
    )


class _Description(Description):
    described = DescribedGroup
    unseen_topics = "The described group uses topics that the client is not authorized to describe."

    def __init__(self, context: RequestContext, *, includes_topology: bool) -> None:
        super().__init__(context)
        self._is_to_describe = includes_topology

    @property
    def is_served(self) -> bool:
        return GroupProtocol.STREAMS.is_enabled(self.context)

    def find(self, group_id: str) -> StreamsGroup:
        return self.context.broker.group_coordinator.streams_groups.describe(group_id)

    def topic_names(self, group: StreamsGroup) -> Iterable[str]:
        return _topic_names(group)

    async def tell(self, group: StreamsGroup) -> DescribedGroup:
        return await _group(self.context, self._is_to_describe, group)


async def _group(context: RequestContext, is_to_describe: bool, group: StreamsGroup) -> DescribedGroup:
    status, description = DescriptionStatus.NOT_REQUESTED, None
    if is_to_describe:
        status, description = await described(group.description)
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        topology=await _topology(group, context),
        members=[await _member(group, member, context) for member in list(group.members.values())],
        topology_description=description,
        topology_description_status=status,
        assignor_name=ASSIGNOR_NAME,
    )


def _topic_names(group: StreamsGroup) -> list[str]:
    subtopologies = () if group.topology is None else group.topology.subtopologies.values()
    return sorted({name for subtopology in subtopologies for name in topics_of(subtopology)})


async def _topology(group: StreamsGroup, context: RequestContext) -> Topology | None:
    topology, configured = group.topology, group.configured
    if topology is None:
        return None
    await context.work.charge(len(topology.required_topics))
    if configured is not None and configured.is_ready:
        subtopologies = [_configured(name, each) for name, each in sorted(configured.subtopologies.items())]
    else:
        subtopologies = [_as_given(topology.subtopologies[name]) for name in sorted(topology.subtopologies)]
    return Topology(epoch=topology.epoch, subtopologies=subtopologies)


def _configured(name: str, subtopology: ConfiguredSubtopology) -> Subtopology:
    return Subtopology(
        subtopology_id=name,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sinks),
        state_changelog_topics=[_decided(subtopology.changelogs[name]) for name in sorted(subtopology.changelogs)],
        repartition_source_topics=[
            _decided(subtopology.repartition_sources[name]) for name in sorted(subtopology.repartition_sources)
        ],
    )


def _decided(topic: InternalTopic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs.items()],
    )


def _as_given(subtopology: record.Subtopology) -> Subtopology:
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=_topics(subtopology.state_changelog_topics),
        repartition_source_topics=_topics(subtopology.repartition_source_topics),
    )


def _topics(topics: list[record.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


async def _member(group: StreamsGroup, member: StreamsMember, context: RequestContext) -> Member:
    subscription = member.subscription
    assigned, target = member.current.assigned.without_epochs(), group.target_of(member.member_id)
    listed = sum(len(indexes) for tasks in (assigned, target) for role in tasks for indexes in role)
    await context.work.charge(1 + listed + sum(map(len, member.offsets)))
    endpoint = subscription.user_endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.current.epoch,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        topology_epoch=subscription.topology_epoch,
        process_id=subscription.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in subscription.client_tags.items()],
        task_offsets=_offsets(member.offsets.offsets),
        task_end_offsets=_offsets(member.offsets.ends),
        assignment=_assignment(assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: TaskSet) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _offsets(reported: Mapping[Task, int]) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=name, partition=index, offset=reported[name, index])
        for name, index in sorted(reported)
    ]
