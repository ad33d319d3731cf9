"""ReadShareGroupStateSummary (87): the state of share partitions without their batches (KIP-932). Between brokers.

One that was never initialized is answered with offset -1. Version 1 adds how many records after the start offset are
finished (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.share.state import SharePartitionKey
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.share.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from ottla.metadata.acls import AclOperation
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, on_cluster(AclOperation.CLUSTER_ACTION))


async def handle(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    response = ReadShareGroupStateSummaryResponse()
    if not request.group_id:
        return response  # as Kafka answers it
    async for topic in context.work.over(request.topics):
        partitions = [
            _summary(SharePartitionKey(request.group_id, topic.topic_id, each.partition), context)
            async for each in context.work.over(topic.partitions)
        ]
        if partitions:
            # A topic without partitions is left out, as in Kafka.
            response.results.append(ReadStateSummaryResult(topic_id=topic.topic_id, partitions=partitions))
    return response


def _summary(key: SharePartitionKey, context: RequestContext) -> PartitionResult:
    try:
        state = context.broker.coordinators.shares.read_summary(key)
    except CoordinatorError as error:
        code, message = outcome(error)
        return PartitionResult(partition=key.partition, error_code=code, error_message=message)
    return PartitionResult(
        partition=key.partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )
