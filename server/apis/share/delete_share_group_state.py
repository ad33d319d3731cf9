"""DeleteShareGroupState (86): forget the delivery state of share partitions (KIP-932). Between brokers.

If there is none, there is nothing to do, and no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.share.state import SharePartitionKey
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.share.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from ottla.metadata.acls import AclOperation
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.DELETE_SHARE_GROUP_STATE, on_cluster(AclOperation.CLUSTER_ACTION))


async def handle(request: DeleteShareGroupStateRequest, context: RequestContext) -> DeleteShareGroupStateResponse:
    if not request.group_id:
        return DeleteShareGroupStateResponse()  # as Kafka answers it
    work = context.work
    keys = [
        SharePartitionKey(request.group_id, topic.topic_id, each.partition)
        async for topic in work.over(request.topics, counts=False)
        async for each in work.over(topic.partitions, counts=False)
    ]
    outcomes = await context.broker.coordinators.shares.delete(keys)
    response = DeleteShareGroupStateResponse()
    async for topic in work.over(request.topics):
        result = DeleteStateResult(topic_id=topic.topic_id)
        async for each in work.over(topic.partitions):
            code, message = outcome(outcomes[SharePartitionKey(request.group_id, topic.topic_id, each.partition)])
            result.partitions.append(PartitionResult(partition=each.partition, error_code=code, error_message=message))
        if result.partitions:
            # A topic without partitions is left out, as in Kafka.
            response.results.append(result)
    work.leave(keys, outcomes)
    return response
