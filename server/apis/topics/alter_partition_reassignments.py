"""AlterPartitionReassignments (45): moves partitions to other brokers, or takes that back (KIP-455).

Null replicas cancel; with nothing under way that is NO_REASSIGNMENT_IN_PROGRESS. A move to where the replicas already
are is done at once. A request without topics is answered with the defaults of the response, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.changes.partition_changes import PartitionUpdate, cancel_reassignment, reassign
from ottla.metadata.changes.partition_transactions import PartitionKey, PartitionOutcome
from ottla.metadata.changes.placement import check_assignment
from ottla.metadata.errors import InvalidReplicationFactorError, UnknownTopicError
from ottla.metadata.image import PartitionState
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    on_cluster(AclOperation.ALTER),
    forwarded=True,
    timed=True,
    changes_metadata=True,
)

_UNKNOWN: Final = UnknownTopicError("This server does not host this topic-partition.")


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    if not request.topics:
        return AlterPartitionReassignmentsResponse()
    image = context.broker.metadata
    known = tuple(image.brokers)
    updates: dict[PartitionKey, PartitionUpdate] = {}
    async for topic in context.work.over(request.topics, counts=False):
        found = image.topic(topic.name)
        async for each in context.work.over(topic.partitions, counts=False):
            if found is not None:
                update = _update(each, known, allow_factor_change=request.allow_replication_factor_change)
                updates[found.topic_id, each.partition_index] = update
    outcomes: dict[PartitionKey, PartitionOutcome]
    try:
        outcomes = await context.broker.controller.change_partitions(updates)
    except MetadataError as error:
        outcomes = dict.fromkeys(updates, error)
    responses = []
    async for topic in context.work.over(request.topics):
        found = image.topic(topic.name)
        partitions = [
            _answer(each.partition_index, _UNKNOWN if found is None else outcomes[found.topic_id, each.partition_index])
            async for each in context.work.over(topic.partitions)
        ]
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    context.work.leave(updates, outcomes)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )


def _update(asked: ReassignablePartition, known: Sequence[int], *, allow_factor_change: bool) -> PartitionUpdate:
    """The request's change of the partition's state."""
    replicas = asked.replicas

    def update(state: PartitionState) -> PartitionState:
        if replicas is None:
            return cancel_reassignment(state)
        before = len([it for it in state.replicas if it not in state.adding_replicas])
        # Whether the replicas are in order comes first.
        if not allow_factor_change and len(check_assignment(replicas, known, None)) != before:
            raise InvalidReplicationFactorError(f"The replication factor is changed from {before} to {len(replicas)}")
        return reassign(state, replicas, known)

    return update


def _answer(partition_index: int, result: PartitionOutcome) -> ReassignablePartitionResponse:
    code, message = outcome(result if isinstance(result, MetadataError) else None)
    return ReassignablePartitionResponse(partition_index=partition_index, error_code=code, error_message=message)
