"""StreamsGroupHeartbeat (88): a streams group's one request (KIP-1071).

- Epoch 0 joins, with the topology and no tasks; the member chooses its own id. Epoch -1 leaves. What a later heartbeat
  leaves out has not changed.
- Tasks are sent when they have changed, and to members that join. The statuses say why there are none yet.
- The first heartbeat that finds the topology's internal topics missing creates them, in the name of its sender, who
  needs the right to do so. The next heartbeat finds them there.
- Patterns of source topics are refused, as by Kafka 4.4.
- A member that speaks version 1 may be asked to describe its topology (`streams_group_topology_description_update`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.coordinator.errors import CoordinatorError, InvalidRequestError, StreamsInvalidTopologyError
from ottla.coordinator.group.modern.group import JOIN_EPOCH
from ottla.coordinator.group.modern.static_members import LEAVE_STATIC_EPOCH
from ottla.coordinator.group.streams.assignor import TaskSet
from ottla.coordinator.group.streams.heartbeat import StreamsHeartbeat
from ottla.coordinator.group.streams.member import Endpoint as UserEndpoint
from ottla.coordinator.group.streams.topology import StreamsStatus
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
    TopicPartition,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.changes.topic_changes import USE_DEFAULT, NewTopic
from ottla.metadata.errors import InvalidTopicError, TopicAlreadyExistsError
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.metadata.topic_names import check_topic_name
from ottla.metastore.errors import MetadataError
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import MAX_MESSAGE_LENGTH, error_code, error_message
from ottla.server.apis.groups.group_protocols import GroupProtocol
from ottla.server.apis.groups.streams_groups import MAX_ELEMENTS, topics_of, topology_of
from ottla.server.apis.rules import Named, Rule

if TYPE_CHECKING:
    from ottla.coordinator.group.streams.assignor import Task, Tasks
    from ottla.coordinator.group.streams.endpoints import EndpointTasks
    from ottla.coordinator.group.streams.heartbeat import StreamsHeartbeatResult
    from ottla.coordinator.group.streams.topology import InternalTopic
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.STREAMS_GROUP_HEARTBEAT, Rule([Named(AclOperation.READ, AclResource.GROUP, "group_id")]))

_SHOWN: Final = 3
_WITH_DESCRIPTIONS: Final = 1


async def handle(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> StreamsGroupHeartbeatResponse:
    if not GroupProtocol.STREAMS.is_enabled(context):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        _check_size(context)
        if request.topology is not None:
            await _check_topics(request, context)
            if not await _may_see_topics(request, context):
                return StreamsGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        _check_features(request)
        _check(request)
        beat = _heartbeat(request, context)
        result = await context.broker.group_coordinator.streams_groups.heartbeat(request.group_id, beat)
    except CoordinatorError as error:
        return StreamsGroupHeartbeatResponse(error_code=error_code(error), error_message=error_message(error))
    response = _response(result)
    if result.to_create:
        details = await _create(result.to_create, context)
        if details:
            _add_detail(response, details)
    return response


# What is refused before any group is looked at: KafkaApis.handleStreamsGroupHeartbeat and GroupCoordinatorService


def _check_size(context: RequestContext) -> None:
    """Limit the size of a topology, which is looked at as a whole afterwards."""
    if context.work.elements > MAX_ELEMENTS:
        raise StreamsInvalidTopologyError(f"A heartbeat with more than {MAX_ELEMENTS} elements is refused.")


async def _check_topics(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> None:
    assert request.topology is not None
    names: dict[str, None] = {}
    async for subtopology in context.work.over(request.topology.subtopologies):
        names |= dict.fromkeys(topics_of(subtopology))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise StreamsInvalidTopologyError(
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        )
    wrong = [name for name in names if not _is_valid(name)]
    if wrong:
        raise StreamsInvalidTopologyError(f"Topic names {','.join(wrong)} are not valid topic names.")


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return False
    return True


async def _may_see_topics(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> bool:
    access = context.access
    if access is None or request.topology is None:
        return True
    names = {name for subtopology in request.topology.subtopologies for name in topics_of(subtopology)}
    async for name in context.work.over(sorted(names)):
        if not access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name):
            return False
    return True


def _check_features(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse what Kafka 4.4 does not support yet either."""
    topology = request.topology
    if topology is not None and any(subtopology.source_topic_regex for subtopology in topology.subtopologies):
        raise InvalidRequestError("Regular expressions for source topics are not supported yet.")


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse what contradicts itself."""
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
    tasks = {"Active": request.active_tasks, "Standby": request.standby_tasks, "Warmup": request.warmup_tasks}
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
        for name, given in tasks.items():
            if given is None or given:
                raise InvalidRequestError(f"{name}Tasks must be empty when (re-)joining.")
        if request.topology is None:
            raise InvalidRequestError("Topology must be non-null when (re-)joining.")
        _check_changelogs(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequestError(
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to {LEAVE_STATIC_EPOCH}."
        )
    if any(given is not None for given in tasks.values()) and any(given is None for given in tasks.values()):
        raise InvalidRequestError("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise InvalidRequestError("Topology can only be provided when (re-)joining.")


def _check_changelogs(request: StreamsGroupHeartbeatRequest) -> None:
    assert request.topology is not None
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise StreamsInvalidTopologyError(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )


# To the group and back


def _heartbeat(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> StreamsHeartbeat:
    owned = None
    if request.active_tasks is not None:
        owned = TaskSet(
            _tasks(request.active_tasks), _tasks(request.standby_tasks or ()), _tasks(request.warmup_tasks or ())
        )
    endpoint, tags = request.user_endpoint, request.client_tags
    timeout_ms = request.rebalance_timeout_ms
    return StreamsHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        rack_id=request.rack_id,
        client_id=context.header.client_id or "",
        client_host=context.client_host,
        rebalance_timeout_ms=None if timeout_ms == -1 else timeout_ms,
        topology=None if request.topology is None else topology_of(request.topology),
        owned=owned,
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else {tag.key: tag.value for tag in tags},
        shutdown_application=request.shutdown_application,
        instance_id=request.instance_id,
        task_offsets=_offsets(request.task_offsets),
        task_end_offsets=_offsets(request.task_end_offsets),
        knows_4_4=context.header.api_version >= _WITH_DESCRIPTIONS,
    )


def _offsets(reported: Sequence[TaskOffset] | None) -> Sequence[tuple[Task, int]] | None:
    return None if reported is None else [((each.subtopology_id, each.partition), each.offset) for each in reported]


def _tasks(tasks: Sequence[TaskIds]) -> Tasks:
    return {task.subtopology_id: frozenset(task.partitions) for task in tasks}


def _response(result: StreamsHeartbeatResult) -> StreamsGroupHeartbeatResponse:
    response = StreamsGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        status=[
            Status(status_code=each.status, status_detail=each.detail[:MAX_MESSAGE_LENGTH]) for each in result.statuses
        ],
        endpoint_information_epoch=result.endpoint_epoch,
        task_offset_interval_ms=result.task_offset_interval_ms,
        acceptable_recovery_lag=result.acceptable_recovery_lag,
        topology_description_required=result.asks_for_description,
    )
    if result.tasks is not None:
        response.active_tasks = _task_ids(result.tasks.active)
        response.standby_tasks = _task_ids(result.tasks.standby)
        response.warmup_tasks = _task_ids(result.tasks.warmup)
    if result.endpoints is not None:
        response.partitions_by_user_endpoint = [_endpoint(each) for each in result.endpoints]
    return response


def _task_ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _endpoint(tasks: EndpointTasks) -> EndpointToPartitions:
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=tasks.endpoint.host, port=tasks.endpoint.port),
        active_partitions=_partitions(tasks.active),
        standby_partitions=_partitions(tasks.standby),
    )


def _partitions(topics: Sequence[tuple[str, Sequence[int]]]) -> list[TopicPartition]:
    return [TopicPartition(topic=topic, partitions=list(indexes)) for topic, indexes in topics]


# Internal topics


async def _create(missing: Mapping[str, InternalTopic], context: RequestContext) -> str:
    """Create the internal topics; returns what the member is told about those that could not be created."""
    access = context.access
    if access is not None and not access.allows_on_cluster(AclOperation.CREATE, is_asked=False):
        denied = [name for name in missing if not access.allows(AclOperation.CREATE, AclResource.TOPIC, name)]
        if denied:
            return f"; Unauthorized to CREATE on topics {', '.join(denied)}."
    asked = [
        NewTopic(topic.name, topic.partitions, topic.replication_factor or USE_DEFAULT, configs=dict(topic.configs))
        for topic in missing.values()
    ]
    try:
        results = await context.broker.controller.create_topics(asked)
    except MetadataError as error:
        results = dict.fromkeys(missing, error)
    failed = {
        name: result
        for name, result in results.items()
        # Another member's heartbeat may have been quicker.
        if isinstance(result, MetadataError) and not isinstance(result, TopicAlreadyExistsError)
    }
    if not failed:
        return ""
    shown = ", ".join(f"{name} ({failed[name]})" for name in sorted(failed)[:_SHOWN])
    more = f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    return f"; Creation failed: {shown}{more}."


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    for status in response.status or ():
        if status.status_code == StreamsStatus.MISSING_INTERNAL_TOPICS:
            status.status_detail = (status.status_detail + detail)[:MAX_MESSAGE_LENGTH]
