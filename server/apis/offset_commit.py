"""OffsetCommit (8): remember how far a group has read.

- An offset is answered only when its record is committed to `__consumer_offsets`.
- From version 10 topics are named by id alone: an unknown id is UNKNOWN_TOPIC_ID (KIP-848). Before, an unknown name or
  partition is UNKNOWN_TOPIC_OR_PARTITION; the others of the request are committed all the same.
- A member of a consumer group (KIP-848) commits with its epoch from version 9; UNSUPPORTED_VERSION before.
- A member of a group that does not exist gets GROUP_ID_NOT_FOUND from version 9, ILLEGAL_GENERATION before.
- The leader epoch and the metadata string come back as they were committed; null metadata is stored as "".
"""

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.server.apis.errors import error_code
from ottla.server.context import RequestContext
from ottla.server.coordinator.errors import CoordinatorError, GroupIdNotFoundError
from ottla.server.coordinator.group.commits import OffsetToCommit
from ottla.server.coordinator.group.offsets import TopicPartition
from ottla.server.metadata.image import TopicImage


async def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    by_id = context.header.api_version >= 10
    answers: dict[TopicPartition, OffsetCommitResponsePartition] = {}
    offsets: dict[TopicPartition, OffsetToCommit] = {}
    response = OffsetCommitResponse()
    for asked in request.topics:
        topic = _topic(asked, context, by_id=by_id)
        answered = OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id)
        response.topics.append(answered)
        for partition in asked.partitions:
            answer = OffsetCommitResponsePartition(partition_index=partition.partition_index)
            answered.partitions.append(answer)
            if topic is None and by_id:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            elif topic is None or not 0 <= partition.partition_index < len(topic.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                key = TopicPartition(topic.name, partition.partition_index)
                answers[key] = answer
                offsets[key] = OffsetToCommit(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                    retention_ms=request.retention_time_ms,
                    topic_id=topic.topic_id,
                )
    await _commit(request, context, offsets, answers)
    return response


def _topic(asked: OffsetCommitRequestTopic, context: RequestContext, *, by_id: bool) -> TopicImage | None:
    image = context.broker.metadata
    return image.topic_by_id(asked.topic_id) if by_id else image.topic(asked.name)


async def _commit(
    request: OffsetCommitRequest,
    context: RequestContext,
    offsets: dict[TopicPartition, OffsetToCommit],
    answers: dict[TopicPartition, OffsetCommitResponsePartition],
) -> None:
    if not offsets:
        return
    try:
        refused = await context.broker.group_coordinator.commit_offsets(
            request.group_id,
            offsets,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
            knows_epochs=context.header.api_version >= 9,
        )
    except CoordinatorError as error:
        code = error_code(error)
        if isinstance(error, GroupIdNotFoundError) and context.header.api_version < 9:
            code = ErrorCode.ILLEGAL_GENERATION
        for answer in answers.values():
            answer.error_code = code
    else:
        for partition, reason in refused.items():
            answers[partition].error_code = error_code(reason)
