"""ElectLeaders (43): gives leadership to preferred replicas, or to any living one (KIP-460).

- Null partitions mean all of them; then only those are answered whose election was needed.
- A partition that is led as it should be is ELECTION_NOT_NEEDED.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.changes.partition_changes import elect_preferred, elect_unclean
from ottla.metadata.changes.partition_transactions import PartitionKey, PartitionOutcome
from ottla.metadata.errors import ElectionNotNeededError, UnknownTopicError
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.ELECT_LEADERS, on_cluster(AclOperation.ALTER), forwarded=True, timed=True, changes_metadata=True)

_ELECTIONS: Final = {0: elect_preferred, 1: elect_unclean}


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    broker = context.broker
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        return await _refused(request, context, f"Unknown election type {request.election_type}")
    image = broker.metadata
    live = {it.node_id for it in image.live_brokers()}
    everything = request.topic_partitions is None
    if request.topic_partitions is None:
        asked = [(topic.name, list(range(len(topic.partitions)))) for topic in image.topics.values()]
    else:
        asked = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    update = partial(election, live=live)
    updates = {
        (topic.topic_id, partition): update
        for name, partitions in asked
        if (topic := image.topic(name)) is not None
        async for partition in context.work.over(partitions)
    }
    outcomes: dict[PartitionKey, PartitionOutcome]
    try:
        outcomes = await broker.controller.change_partitions(updates)
    except MetadataError as error:
        outcomes = dict.fromkeys(updates, error)
    answers = []
    for name, partitions in asked:
        topic = image.topic(name)
        results = []
        async for partition in context.work.over(partitions):
            failure: MetadataError | None = None
            if topic is None:
                failure = UnknownTopicError(f"No such topic as {name}")
            else:
                changed = outcomes[topic.topic_id, partition]
                failure = changed if isinstance(changed, MetadataError) else None
                if isinstance(failure, UnknownTopicError):
                    failure = UnknownTopicError(f"No such partition as {name}-{partition}")
            if everything and isinstance(failure, ElectionNotNeededError):
                continue
            code, message = outcome(failure)
            results.append(PartitionResult(partition_id=partition, error_code=code, error_message=message))
        answers.append(ReplicaElectionResult(topic=name, partition_result=results))
    return ElectLeadersResponse(replica_election_results=answers)


async def _refused(request: ElectLeadersRequest, context: RequestContext, message: str) -> ElectLeadersResponse:
    code = ErrorCode.INVALID_REQUEST
    response = ElectLeadersResponse(error_code=code)
    for topic in request.topic_partitions or ():
        results = [
            PartitionResult(partition_id=partition, error_code=code, error_message=message)
            async for partition in context.work.over(topic.partitions)
        ]
        response.replica_election_results.append(ReplicaElectionResult(topic=topic.topic, partition_result=results))
    return response
