"""ShareGroupHeartbeat (76): a share group's one request (KIP-932).

- Epoch 0 joins and must name topics; the member chooses its own id. Epoch -1 leaves. What a later heartbeat leaves out
  has not changed.
- The assignment is answered when it has changed, and to requests that say everything. It holds partitions only once
  their delivery state is set up, which the first heartbeat begins.
- An error names the reason in `error_message`, except for a member id that no session can have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.errors import CoordinatorError, InvalidRequestError
from ottla.coordinator.group.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.coordinator.group.share.protocol import ShareHeartbeat
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.groups.group_protocols import GroupProtocol
from ottla.server.apis.groups.modern_groups import by_topic
from ottla.server.apis.rules import All, Named, Rule
from ottla.server.apis.share import share_requests

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    Rule(
        [
            Named(AclOperation.READ, AclResource.GROUP, "group_id"),
            All(AclOperation.DESCRIBE, AclResource.TOPIC, "subscribed_topic_names"),
        ]
    ),
)


async def handle(request: ShareGroupHeartbeatRequest, context: RequestContext) -> ShareGroupHeartbeatResponse:
    if not GroupProtocol.SHARE.is_enabled(context):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if share_requests.session_key(request.group_id, request.member_id) is None:
        # KafkaApis says no more of it than that.
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    names = request.subscribed_topic_names
    try:
        _check(request)
        result = await context.broker.group_coordinator.share_groups.heartbeat(
            request.group_id,
            ShareHeartbeat(
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                rack_id=request.rack_id,
                client_id=context.header.client_id or "",
                client_host=context.client_host,
                topic_names=None if names is None else frozenset(names),
            ),
        )
    except CoordinatorError as error:
        return ShareGroupHeartbeatResponse(error_code=error_code(error), error_message=error_message(error))
    assigned = None if result.assignment is None else by_topic(result.assignment, TopicPartitions)
    return ShareGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if assigned is None else Assignment(topic_partitions=assigned),
    )


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Refuse what contradicts itself, as Kafka's GroupCoordinatorService does before it looks at any group."""
    for name, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise InvalidRequestError("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
