"""OffsetCommit (8): remember how far a group has read.

- An offset is answered only when its record is committed to `__consumer_offsets`. A connection may have several commits
  under way; they are committed and answered in the order of the requests.
- From version 10 topics are named by id alone: an unknown id is UNKNOWN_TOPIC_ID (KIP-848). Before, an unknown name or
  partition is UNKNOWN_TOPIC_OR_PARTITION; the others in the request are committed anyway.
- A member of a consumer group (KIP-848) commits with its epoch from version 9; UNSUPPORTED_VERSION before.
- A member of a group that does not exist gets GROUP_ID_NOT_FOUND from version 9, ILLEGAL_GENERATION before; one of a
  share group always GROUP_ID_NOT_FOUND.
- The leader epoch and the metadata string come back as they were committed; null metadata is stored as "".
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from ottla.coordinator.errors import CoordinatorError, TopicDeletedError
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.coordinator.group.offsets.commits import Commit
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.image import TopicImage
from ottla.runtime.stages import Stages
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.groups.answered_topics import AnsweredTopics
from ottla.server.apis.pending import Answer, Pending, begin
from ottla.server.apis.rules import Each, Named, Rule, by_name_or_id
from ottla.server.request_metrics import count_errors_of_partitions

API = Api(
    ApiKey.OFFSET_COMMIT,
    Rule([Named(AclOperation.READ, AclResource.GROUP, "group_id")], Each(AclOperation.READ, "topics", by_name_or_id)),
    pipelined=True,
    count_errors=count_errors_of_partitions,
)

_FIRST_VERSION_BY_ID = 10
_FIRST_VERSION_WITH_EPOCHS = 9
# What the classes themselves do in Python.
_new_tuple: Final = tuple.__new__


def handle(request: OffsetCommitRequest, context: RequestContext) -> Answer:
    if context.counted is not None:
        return begin(_handle_large(request, context))
    commit = _Commit(request, context)
    for asked in request.topics:
        topic = commit.begin_topic(asked)
        for partition in asked.partitions:
            commit.sort_out(topic, partition)
    return commit.begin()


def _handle_large(request: OffsetCommitRequest, context: RequestContext) -> Stages[Answer]:
    commit = _Commit(request, context)
    for asked in request.topics:
        topic = commit.begin_topic(asked)
        for partition in asked.partitions:
            yield context.work.charge
            commit.sort_out(topic, partition)
    return commit.begin()


class _Commit(Pending):
    """One request: what can be committed goes into `_offsets`, the rest has failed; then records go to the log."""

    __slots__ = (
        "_answers",
        "_by_id",
        "_commit",
        "_context",
        "_offsets",
        "_request",
        "_response",
        "_topics",
        "_version",
    )

    def __init__(self, request: OffsetCommitRequest, context: RequestContext) -> None:
        self._request = request
        self._context = context
        self._version = context.header.api_version
        self._by_id = self._version >= _FIRST_VERSION_BY_ID
        self._response = OffsetCommitResponse()
        self._topics: AnsweredTopics[str | UUID, OffsetCommitResponsePartition] = AnsweredTopics()
        self._answers: dict[TopicPartition, OffsetCommitResponsePartition] = {}
        self._offsets: dict[TopicPartition, OffsetToCommit] = {}
        self._commit: Commit

    def begin_topic(self, asked: OffsetCommitRequestTopic) -> TopicImage | None:
        """A topic that is named; the answers to its partitions begin."""
        image = self._context.broker.metadata
        topic = image.topic_by_id(asked.topic_id) if self._by_id else image.topic(asked.name)
        self._topics.begin(asked.topic_id if self._by_id else asked.name, is_unknown=topic is None)
        return topic

    def sort_out(self, topic: TopicImage | None, partition: OffsetCommitRequestPartition) -> None:
        """A partition's answer: it is refused, or one of `_offsets`."""
        index = partition.partition_index
        answer = OffsetCommitResponsePartition(partition_index=index)
        is_refused = topic is None or not 0 <= index < len(topic.partitions)
        if topic is None and self._by_id:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        elif topic is None or is_refused:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            key: TopicPartition = _new_tuple(TopicPartition, (topic.name, index))
            # What is named twice is committed once, as it was named last, and has one answer, which is told twice.
            answer = self._answers.setdefault(key, answer)
            self._offsets[key] = _new_tuple(
                OffsetToCommit,
                (
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    self._request.retention_time_ms,
                    topic.topic_id,
                ),
            )
        self._topics.add(answer, is_refused=is_refused)

    def begin(self) -> Answer:
        """Commit what can be: the answer, or this, which waits for it."""
        self._response.topics = [
            OffsetCommitResponseTopic(topic_id=key, partitions=answers)
            if isinstance(key, UUID)
            else OffsetCommitResponseTopic(name=key, partitions=answers)
            for key, answers in self._topics.in_order()
        ]
        if not self._offsets:
            return self._response
        request = self._request
        try:
            self._commit = self._context.broker.group_coordinator.offsets.begin_commit(
                request.group_id,
                self._offsets,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation_id=request.generation_id_or_member_epoch,
                producer=None,
                knows_epochs=self._version >= _FIRST_VERSION_WITH_EPOCHS,
            )
        except CoordinatorError as error:
            self._fail(error)
            return self._response
        return self.response() if self.is_ready else self

    @property
    def is_ready(self) -> bool:
        return self._commit.write.is_done

    def watch(self, ready: Callable[[], None]) -> None:
        self._commit.write.watch(ready)

    def response(self) -> OffsetCommitResponse:
        error = self._commit.write.error
        if error is not None:
            self._fail(error)
        else:
            for partition, reason in self._commit.refused.items():
                unknown = isinstance(reason, TopicDeletedError) and self._by_id
                self._answers[partition].error_code = ErrorCode.UNKNOWN_TOPIC_ID if unknown else error_code(reason)
        return self._response

    def _fail(self, error: CoordinatorError) -> None:
        code = error_code(error)
        for answer in self._answers.values():
            answer.error_code = code
