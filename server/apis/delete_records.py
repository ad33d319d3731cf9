"""DeleteRecords (21): moves log starts forward, -1 to the high watermark (KIP-107).

Each partition is answered separately with its new low watermark, -1 if it failed: beyond the high watermark is
OFFSET_OUT_OF_RANGE, a compacted topic POLICY_VIOLATION, a coordinator's topic INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.server.apis.context import RequestContext
from ottla.server.apis.results import outcome
from ottla.server.metadata.image import TopicImage
from ottla.server.replica.append import TopicIdPartition
from ottla.server.replica.delete_records import DeleteRecordsResult


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    image = context.broker.metadata
    asked = [(topic, image.topic(topic.name)) async for topic in context.work.over(request.topics)]
    offsets = {
        TopicIdPartition(found.topic_id, it.partition_index): it.offset
        async for topic, found in context.work.over(asked)
        if found is not None
        async for it in context.work.over(topic.partitions)
    }
    results = await context.broker.replica_manager.delete_records(offsets, timeout_ms=request.timeout_ms)
    context.work.leave(asked, offsets, results)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_result(it, found, results) async for it in context.work.over(topic.partitions)],
            )
            async for topic, found in context.work.over(asked)
        ]
    )


def _result(
    asked: DeleteRecordsPartition,
    topic: TopicImage | None,
    results: dict[TopicIdPartition, DeleteRecordsResult],
) -> DeleteRecordsPartitionResult:
    number = asked.partition_index
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteRecordsPartitionResult(partition_index=number, low_watermark=-1, error_code=code)
    result = results[TopicIdPartition(topic.topic_id, number)]
    code, _ = outcome(result.error)
    low_watermark = result.low_watermark if result.error is None else -1
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=low_watermark, error_code=code)
