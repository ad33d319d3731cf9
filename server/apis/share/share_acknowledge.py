"""ShareAcknowledge (79): give records of a share group back, without fetching (KIP-932).

- Versions 1 and 2; 2 adds the renewal of locks (KIP-1222).
- It continues the member's share session; epoch -1 ends it, and gives back what the member still holds.
- Each partition is answered on its own, when what was acknowledged is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.replica.append import TopicIdPartition
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.groups.group_protocols import GroupProtocol
from ottla.server.apis.rules import Named, Rule
from ottla.server.apis.share import share_requests
from ottla.server.share.errors import ShareError
from ottla.server.share.sessions import FINAL_EPOCH

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.SHARE_ACKNOWLEDGE, Rule([Named(AclOperation.READ, AclResource.GROUP, "group_id")]))


async def handle(request: ShareAcknowledgeRequest, context: RequestContext) -> ShareAcknowledgeResponse:
    if not GroupProtocol.SHARE.is_enabled(context):
        return ShareAcknowledgeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    key = share_requests.session_key(request.group_id, request.member_id)
    if key is None:
        what = "group" if request.group_id is None else "member"
        return ShareAcknowledgeResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=f"Invalid {what} id in the request."
        )
    manager = context.broker.share.manager
    try:
        manager.sessions.acknowledge(key, request.share_session_epoch)
    except ShareError as error:
        return ShareAcknowledgeResponse(error_code=error_code(error), error_message=error_message(error))
    asked = {
        TopicIdPartition(topic.topic_id, each.partition_index): each.acknowledgement_batches
        async for topic in context.work.over(request.topics, counts=False)
        async for each in context.work.over(topic.partitions, counts=False)
    }
    may_renew = context.header.api_version >= share_requests.FIRST_VERSION_WITH_RENEWAL and request.is_renew_ack
    outcomes = await share_requests.acknowledge(key, asked, context, may_renew=may_renew)
    if request.share_session_epoch == FINAL_EPOCH:
        await manager.release(key)
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=manager.config(key.group_id).lock_duration_ms)
    topics: dict[UUID, ShareAcknowledgeTopicResponse] = {}
    for partition in asked:
        await context.work.charge()
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = ShareAcknowledgeTopicResponse(topic_id=partition.topic_id)
            response.responses.append(topic)
        topic.partitions.append(_partition_data(partition, outcomes[partition], response, context))
    context.work.leave(asked, outcomes)
    return response


def _partition_data(
    partition: TopicIdPartition,
    refused: Exception | None,
    response: ShareAcknowledgeResponse,
    context: RequestContext,
) -> PartitionData:
    data = PartitionData(partition_index=partition.partition)
    if refused is not None:
        data.error_code, data.error_message = share_requests.partition_error_code(refused), error_message(refused)
    leader = share_requests.leader_now(context, partition, refused)
    if leader is not None:
        data.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
        if leader.endpoint is not None and all(known.node_id != leader.leader_id for known in response.node_endpoints):
            node_id, host, port, rack = leader.endpoint
            response.node_endpoints.append(NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack))
    return data
