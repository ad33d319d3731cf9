"""ConsumerGroupHeartbeat (68): the consumer protocol's one request (KIP-848).

- Epoch 0 joins and must come with everything: a rebalance timeout, a subscription and an empty list of partitions.
  From version 1 the member chooses its own id, and may subscribe by a regular expression, which RE2 evaluates; it
  matches only topics that the member may describe.
- Epoch -1 leaves, -2 leaves for a while (static members). What a later heartbeat leaves out has not changed.
- The assignment is sent when it has changed, and in answer to requests that say everything.
- An error names the reason in `error_message`.
"""

from ottla.coordinator.errors import CoordinatorError, InvalidRequestError, UnsupportedAssignorError
from ottla.coordinator.group.consumer.assignors import assignor_names
from ottla.coordinator.group.consumer.protocol import Heartbeat
from ottla.coordinator.group.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.coordinator.group.modern.static_members import LEAVE_STATIC_EPOCH
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.groups.group_protocols import GroupProtocol
from ottla.server.apis.groups.modern_groups import by_topic
from ottla.server.apis.results import may_describe
from ottla.server.apis.rules import All, Named, Rule

API = Api(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    Rule(
        [
            Named(AclOperation.READ, AclResource.GROUP, "group_id"),
            All(AclOperation.DESCRIBE, AclResource.TOPIC, "subscribed_topic_names"),
        ]
    ),
)


async def handle(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerGroupHeartbeatResponse:
    if not GroupProtocol.CONSUMER.is_enabled(context):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        _check(request, context)
        result = await context.broker.group_coordinator.consumer_groups.heartbeat(
            request.group_id, _heartbeat(request, context)
        )
    except CoordinatorError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error_code(error), error_message=error_message(error))
    assigned = None if result.assignment is None else by_topic(result.assignment, TopicPartitions)
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if assigned is None else Assignment(topic_partitions=assigned),
    )


def _check(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> None:
    """Refuse what contradicts itself, as Kafka's GroupCoordinatorService does before it looks at any group."""
    is_member = request.member_epoch > JOIN_EPOCH or request.member_epoch == LEAVE_EPOCH
    if not request.member_id.strip() and (context.header.api_version >= 1 or is_member):
        raise InvalidRequestError("MemberId can't be empty.")
    if not request.group_id.strip():
        raise InvalidRequestError("GroupId can't be empty.")
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    offered = assignor_names(context.broker.config.group_consumer_assignors)
    if request.server_assignor is not None and request.server_assignor not in offered:
        raise UnsupportedAssignorError(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(offered)}."
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise InvalidRequestError(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _heartbeat(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Heartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Heartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.header.client_id or "",
        client_host=context.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if owned is None else {topic.topic_id: frozenset(topic.partitions) for topic in owned},
        may_describe=may_describe(context.access),
    )
