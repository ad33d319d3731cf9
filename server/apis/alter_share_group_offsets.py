"""AlterShareGroupOffsets (91): let a share group without members begin at other offsets (KIP-932).

What was in flight is forgotten. A group that is not there is made; one with members is NON_EMPTY_GROUP. Each partition
has an answer of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.kproto.schema import ZERO_UUID
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.results import outcome
from ottla.server.coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext


async def handle(request: AlterShareGroupOffsetsRequest, context: RequestContext) -> AlterShareGroupOffsetsResponse:
    work = context.work
    offsets = {
        topic.topic_name: {
            each.partition_index: each.start_offset async for each in work.over(topic.partitions, counts=False)
        }
        async for topic in work.over(request.topics, counts=False)
    }
    try:
        outcomes = await context.broker.group_coordinator.share_groups.alter_offsets(request.group_id, offsets)
    except CoordinatorError as error:
        return AlterShareGroupOffsetsResponse(error_code=error_code(error), error_message=error_message(error))
    response = AlterShareGroupOffsetsResponse()
    image = context.broker.metadata
    async for name in work.over(offsets):
        topic = image.topic(name)
        answer = AlterShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=ZERO_UUID if topic is None else topic.topic_id
        )
        async for index in work.over(offsets[name]):
            code, message = outcome(outcomes[name, index])
            answer.partitions.append(
                AlterShareGroupOffsetsResponsePartition(partition_index=index, error_code=code, error_message=message)
            )
        response.responses.append(answer)
    return response
