"""ReadShareGroupState (84): the delivery state of share partitions, for the leader that takes them over (KIP-932).

Between brokers. Leaders of epochs before the one that asks write no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.share.state import SharePartitionKey
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.share.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from ottla.metadata.acls import AclOperation
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.READ_SHARE_GROUP_STATE, on_cluster(AclOperation.CLUSTER_ACTION))


async def handle(request: ReadShareGroupStateRequest, context: RequestContext) -> ReadShareGroupStateResponse:
    response = ReadShareGroupStateResponse()
    if not request.group_id:
        return response  # as Kafka answers it
    for topic in request.topics:
        result = ReadStateResult(topic_id=topic.topic_id)
        for each in topic.partitions:
            await context.work.charge()
            key = SharePartitionKey(request.group_id, topic.topic_id, each.partition)
            result.partitions.append(await _read(key, each.leader_epoch, context))
        if result.partitions:
            # A topic without partitions is left out, as in Kafka.
            response.results.append(result)
    return response


async def _read(key: SharePartitionKey, leader_epoch: int, context: RequestContext) -> PartitionResult:
    try:
        state = await context.broker.coordinators.shares.read(key, leader_epoch)
    except CoordinatorError as error:
        code, message = outcome(error)
        return PartitionResult(partition=key.partition, error_code=code, error_message=message)
    return PartitionResult(
        partition=key.partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count)
            for first, last, delivery_state, count in state.batches
        ],
    )
