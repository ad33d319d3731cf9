"""ListPartitionReassignments (46): the moves under way, of some topics or (null) of all (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.changes.partition_changes import is_reassigning
from ottla.metadata.image import TopicImage
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, on_cluster(AclOperation.DESCRIBE), forwarded=True)


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    image = context.broker.metadata
    asked: Iterable[tuple[TopicImage | None, Iterable[int]]]
    if request.topics is None:
        asked = ((topic, range(len(topic.partitions))) for topic in image.topics.values())
    else:
        asked = ((image.topic(it.name), it.partition_indexes) for it in request.topics)
    topics = []
    async for topic, numbers in context.work.over(asked, counts=False):
        if topic is None:
            continue
        partitions = [it async for number in context.work.over(numbers) if (it := _ongoing(topic, number)) is not None]
        if partitions:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=partitions))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _ongoing(topic: TopicImage, number: int) -> OngoingPartitionReassignment | None:
    if not 0 <= number < len(topic.partitions):
        return None
    state = topic.partitions[number]
    if not is_reassigning(state):
        return None
    return OngoingPartitionReassignment(
        partition_index=number,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
    )
