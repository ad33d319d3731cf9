"""InitializeShareGroupState (83): begin the delivery state of share partitions at an offset (KIP-932). Between brokers.

A state epoch lower than the stored one is FENCED_STATE_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.share.persister import Initialization
from ottla.coordinator.share.state import SharePartitionKey
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.share.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from ottla.metadata.acls import AclOperation
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, on_cluster(AclOperation.CLUSTER_ACTION))


async def handle(
    request: InitializeShareGroupStateRequest, context: RequestContext
) -> InitializeShareGroupStateResponse:
    if not request.group_id:
        return InitializeShareGroupStateResponse()  # as Kafka answers it
    work = context.work
    wanted = [
        Initialization(
            SharePartitionKey(request.group_id, topic.topic_id, each.partition), each.state_epoch, each.start_offset
        )
        async for topic in work.over(request.topics, counts=False)
        async for each in work.over(topic.partitions, counts=False)
    ]
    outcomes = await context.broker.coordinators.shares.initialize(wanted)
    response = InitializeShareGroupStateResponse()
    async for topic in work.over(request.topics):
        result = InitializeStateResult(topic_id=topic.topic_id)
        async for each in work.over(topic.partitions):
            code, message = outcome(outcomes[SharePartitionKey(request.group_id, topic.topic_id, each.partition)])
            result.partitions.append(PartitionResult(partition=each.partition, error_code=code, error_message=message))
        if result.partitions:
            # A topic without partitions is left out, as in Kafka.
            response.results.append(result)
    work.leave(wanted, outcomes)
    return response
