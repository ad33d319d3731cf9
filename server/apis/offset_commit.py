"""OffsetCommit (8): remember how far a group has read.

- An offset is answered only when its record is committed to `__consumer_offsets`. A connection may have several commits
  under way; they are committed and answered in the order of the requests.
- From version 10 topics are named by id alone: an unknown id is UNKNOWN_TOPIC_ID (KIP-848). Before, an unknown name or
  partition is UNKNOWN_TOPIC_OR_PARTITION; the others in the request are committed anyway.
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
from ottla.server.apis.context import Deferred, RequestContext
from ottla.server.apis.errors import error_code
from ottla.server.coordinator.errors import CoordinatorError, GroupIdNotFoundError, TopicDeletedError
from ottla.server.coordinator.group.commits import Commit, OffsetToCommit
from ottla.server.coordinator.group.offsets import TopicPartition
from ottla.server.event_loop.stages import Rest, Stages, begin
from ottla.server.metadata.image import TopicImage

_FIRST_VERSION_BY_ID = 10
_FIRST_VERSION_WITH_EPOCHS = 9

Answers = dict[TopicPartition, OffsetCommitResponsePartition]


Answer = OffsetCommitResponse | Deferred


def handle(request: OffsetCommitRequest, context: RequestContext) -> Answer | Rest[Answer]:
    return begin(_handle(request, context))


def _handle(request: OffsetCommitRequest, context: RequestContext) -> Stages[Answer]:
    answers: Answers = {}
    offsets: dict[TopicPartition, OffsetToCommit] = {}
    response = OffsetCommitResponse()
    for asked in request.topics:
        answered = yield from _sort_out(asked, request.retention_time_ms, context, answers, offsets)
        response.topics.append(answered)
    if not offsets:
        return response
    version = context.header.api_version
    try:
        commit = context.broker.group_coordinator.offsets.begin_commit(
            request.group_id,
            offsets,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
            producer=None,
            knows_epochs=version >= _FIRST_VERSION_WITH_EPOCHS,
            may_be_alone=not context.connection.has_more,
        )
    except CoordinatorError as error:
        _fail(answers, error, version)
        return response
    return _Commit(response, answers, commit, version)


def _sort_out(
    asked: OffsetCommitRequestTopic,
    retention_ms: int,
    context: RequestContext,
    answers: Answers,
    offsets: dict[TopicPartition, OffsetToCommit],
) -> Stages[OffsetCommitResponseTopic]:
    """The answer for one topic: what can be committed goes into `offsets`, the rest has failed."""
    image = context.broker.metadata
    is_large = context.counted is not None
    by_id = context.header.api_version >= _FIRST_VERSION_BY_ID
    topic: TopicImage | None = image.topic_by_id(asked.topic_id) if by_id else image.topic(asked.name)
    answered = OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id)
    for partition in asked.partitions:
        if is_large:
            yield context.work.rest
        index = partition.partition_index
        answer = OffsetCommitResponsePartition(partition_index=index)
        answered.partitions.append(answer)
        if topic is None and by_id:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        elif topic is None or not 0 <= index < len(topic.partitions):
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            key = TopicPartition(topic.name, index)
            # What is named twice is committed once, as it was named last, and has one answer, which is told twice.
            answered.partitions[-1] = answers.setdefault(key, answer)
            offsets[key] = OffsetToCommit(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                retention_ms,
                topic.topic_id,
            )
    return answered


def _fail(answers: Answers, error: CoordinatorError, version: int) -> None:
    code = error_code(error)
    if isinstance(error, GroupIdNotFoundError) and version < _FIRST_VERSION_WITH_EPOCHS:
        code = ErrorCode.ILLEGAL_GENERATION
    for answer in answers.values():
        answer.error_code = code


class _Commit(Deferred):
    """A commit whose records are on their way to the log."""

    __slots__ = ("_answers", "_commit", "_response", "_version")

    def __init__(self, response: OffsetCommitResponse, answers: Answers, commit: Commit, version: int) -> None:
        self._response = response
        self._answers = answers
        self._commit = commit
        self._version = version

    @property
    def is_ready(self) -> bool:
        return self._commit.write.is_done

    async def wait(self) -> None:
        await self._commit.write.wait_settled()

    def response(self) -> OffsetCommitResponse:
        error = self._commit.write.error
        if error is not None:
            _fail(self._answers, error, self._version)
        else:
            for partition, reason in self._commit.refused.items():
                by_id = isinstance(reason, TopicDeletedError) and self._version >= _FIRST_VERSION_BY_ID
                self._answers[partition].error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else error_code(reason)
        return self._response
