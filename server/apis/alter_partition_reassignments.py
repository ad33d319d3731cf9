"""AlterPartitionReassignments (45): moves partitions to other brokers, or takes that back (KIP-455).

Null replicas cancel; with nothing under way that is NO_REASSIGNMENT_IN_PROGRESS. A move to where the replicas already
are is done at once.
"""

from __future__ import annotations

from ottla.kproto.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.server.apis.context import RequestContext
from ottla.server.apis.results import outcome
from ottla.server.metadata.errors import InvalidReplicationFactorError, MetadataError
from ottla.server.metadata.image import PartitionState
from ottla.server.metadata.partition_changes import cancel_reassignment, reassign


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    responses = []
    for topic in request.topics:
        partitions = [
            await _alter(topic.name, partition, request.allow_replication_factor_change, context)
            async for partition in context.work.over(topic.partitions)
        ]
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )


async def _alter(
    topic: str, asked: ReassignablePartition, allow_factor_change: bool, context: RequestContext
) -> ReassignablePartitionResponse:
    known = tuple(context.broker.metadata.brokers)

    def update(state: PartitionState) -> PartitionState:
        if asked.replicas is None:
            return cancel_reassignment(state)
        before = len([it for it in state.replicas if it not in state.adding_replicas])
        if not allow_factor_change and len(asked.replicas) != before:
            raise InvalidReplicationFactorError(
                f"The replication factor is changed from {before} to {len(asked.replicas)}"
            )
        return reassign(state, asked.replicas, known)

    failure: MetadataError | None = None
    try:
        await context.broker.controller.change_partition(topic, asked.partition_index, update)
    except MetadataError as error:
        failure = error
    code, message = outcome(failure)
    return ReassignablePartitionResponse(partition_index=asked.partition_index, error_code=code, error_message=message)
