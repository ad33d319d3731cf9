"""DeleteRecords (21): moves log starts forward, -1 to the high watermark (KIP-107).

Each partition is answered separately with its new low watermark, -1 if it failed: beyond the high watermark is
OFFSET_OUT_OF_RANGE, a compacted topic POLICY_VIOLATION, a coordinator's topic INVALID_TOPIC_EXCEPTION. A partition that
is named twice is answered once, with the offset that was named last.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.image import TopicImage
from ottla.replica.append import TopicIdPartition
from ottla.replica.delete_records import DeleteRecordsResult
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import Each, Rule, by

API = Api(
    ApiKey.DELETE_RECORDS,
    Rule(each=Each(AclOperation.DELETE, "topics", by(AclResource.TOPIC, "name"), {"low_watermark": -1})),
    may_wait=True,
)


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    image = context.broker.metadata
    asked: dict[str, dict[int, int]] = {}
    async for topic in context.work.over(request.topics):
        async for it in context.work.over(topic.partitions):
            asked.setdefault(topic.name, {})[it.partition_index] = it.offset
    offsets = {
        TopicIdPartition(found.topic_id, index): offset
        for name, partitions in asked.items()
        if (found := image.topic(name)) is not None
        async for index, offset in context.work.over(partitions.items())
    }
    results = await context.broker.replica_manager.delete_records(offsets, timeout_ms=request.timeout_ms)
    context.work.leave(asked, offsets, results)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _result(index, image.topic(name), results) async for index in context.work.over(asked[name])
                ],
            )
            async for name in context.work.over(asked)
        ]
    )


def _result(
    index: int, topic: TopicImage | None, results: dict[TopicIdPartition, DeleteRecordsResult]
) -> DeleteRecordsPartitionResult:
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=code)
    result = results[TopicIdPartition(topic.topic_id, index)]
    code, _ = outcome(result.error)
    low_watermark = result.low_watermark if result.error is None else -1
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=code)
