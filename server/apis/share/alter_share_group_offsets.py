"""AlterShareGroupOffsets (91): let a share group without members begin at other offsets (KIP-932).

What was in flight is forgotten. A group that does not exist is created; one with members is NON_EMPTY_GROUP. Each
partition is answered separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.errors import CoordinatorError, UnknownSharePartitionError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.kproto.schema import ZERO_UUID
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import Each, Named, Rule, by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metadata.image import TopicImage
    from ottla.server.apis.context import RequestContext

API = Api(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    Rule(
        [Named(AclOperation.READ, AclResource.GROUP, "group_id")],
        Each(AclOperation.READ, "topics", by(AclResource.TOPIC, "topic_name")),
    ),
)

_UNKNOWN: Final = UnknownSharePartitionError("This server does not host this topic-partition.")


async def handle(request: AlterShareGroupOffsetsRequest, context: RequestContext) -> AlterShareGroupOffsetsResponse:
    work, image = context.work, context.broker.metadata
    asked: dict[str, list[tuple[int, int]]] = {}
    async for entry in work.over(request.topics, counts=False):
        starts = [(each.partition_index, each.start_offset) async for each in work.over(entry.partitions, counts=False)]
        asked.setdefault(entry.topic_name, []).extend(starts)
    # Of a partition that is named twice the last offset counts, and it is answered twice, as in Kafka.
    offsets = {name: dict(asked[name]) async for name in work.over(asked, counts=False)}
    # The group looks at all of them at once, so it is spared those that are not there.
    existing = {
        name: found
        async for name in work.over(offsets, counts=False)
        if (found := await _existing(image.topic(name), offsets[name], context))
    }
    try:
        outcomes = await context.broker.group_coordinator.share_groups.alter_offsets(request.group_id, existing)
    except CoordinatorError as error:
        return AlterShareGroupOffsetsResponse(error_code=error_code(error), error_message=error_message(error))
    response = AlterShareGroupOffsetsResponse()
    async for name in work.over(asked):
        topic = image.topic(name)
        answer = AlterShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=ZERO_UUID if topic is None else topic.topic_id
        )
        async for index, _ in work.over(asked[name]):
            code, message = outcome(outcomes.get((name, index), _UNKNOWN))
            answer.partitions.append(
                AlterShareGroupOffsetsResponsePartition(partition_index=index, error_code=code, error_message=message)
            )
        response.responses.append(answer)
    return response


async def _existing(topic: TopicImage | None, starts: Mapping[int, int], context: RequestContext) -> dict[int, int]:
    count = 0 if topic is None else len(topic.partitions)
    return {index: starts[index] async for index in context.work.over(starts, counts=False) if 0 <= index < count}
