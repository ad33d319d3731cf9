"""WriteShareGroupState (85): store what a leader says about share partitions (KIP-932). Between brokers.

It is answered when it is stored. FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH for an outdated writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.share.state import SharePartitionKey, StateBatch, StateChange
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.share.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from ottla.metadata.acls import AclOperation
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.WRITE_SHARE_GROUP_STATE, on_cluster(AclOperation.CLUSTER_ACTION))


async def handle(request: WriteShareGroupStateRequest, context: RequestContext) -> WriteShareGroupStateResponse:
    response = WriteShareGroupStateResponse()
    if not request.group_id:
        return response  # as Kafka answers it
    for topic in request.topics:
        result = WriteStateResult(topic_id=topic.topic_id)
        for each in topic.partitions:
            await context.work.charge(1 + len(each.state_batches))
            key = SharePartitionKey(request.group_id, topic.topic_id, each.partition)
            result.partitions.append(await _write(key, each, context))
        if result.partitions:
            # A topic without partitions is left out, as in Kafka.
            response.results.append(result)
    return response


async def _write(key: SharePartitionKey, asked: PartitionData, context: RequestContext) -> PartitionResult:
    change = StateChange(
        asked.state_epoch,
        asked.leader_epoch,
        asked.start_offset,
        asked.delivery_complete_count,
        [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            async for each in context.work.over(asked.state_batches, counts=False)
        ],
    )
    try:
        await context.broker.coordinators.shares.write(key, change)
    except CoordinatorError as error:
        code, message = outcome(error)
        return PartitionResult(partition=key.partition, error_code=code, error_message=message)
    return PartitionResult(partition=key.partition)
