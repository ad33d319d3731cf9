"""OffsetDelete (47): forget offsets of a group (KIP-496); topics that its members read are refused."""

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.server.apis.context import RequestContext
from ottla.server.apis.errors import error_code
from ottla.server.coordinator.errors import CoordinatorError
from ottla.server.coordinator.group.offsets import TopicPartition


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    image = context.broker.metadata
    wanted = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        async for partition in context.work.over(topic.partitions)
    ]
    known = [partition async for partition in context.work.over(wanted) if image.partition(*partition) is not None]
    try:
        refused = await context.broker.group_coordinator.delete_offsets(request.group_id, known)
    except CoordinatorError as error:
        return OffsetDeleteResponse(error_code=error_code(error))
    codes = dict.fromkeys(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    codes |= dict.fromkeys(known, ErrorCode.NONE)
    codes |= {partition: error_code(reason) for partition, reason in refused.items()}
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[TopicPartition(topic.name, partition.partition_index)],
                    )
                    async for partition in context.work.over(topic.partitions)
                ],
            )
            async for topic in context.work.over(request.topics)
        ]
    )
