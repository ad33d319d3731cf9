"""ListOffsets (2): the offsets of a partition by timestamp, or one of its ends.

- For a timestamp the first visible record at or after it, with its own timestamp and **its** leader epoch, or three
  times -1. The ends have no timestamp.
- Special timestamps below their version, and negative ones that mean nothing, are UNSUPPORTED_VERSION.
- A consumer sees up to the high watermark, or the last stable offset with read_committed; a follower the log end.
- A topic that is named twice is answered once, with all of its partitions. A partition that is named twice is
  INVALID_REQUEST, and answered once, too.
- An isolation level that there is not is UNKNOWN_SERVER_ERROR.
- OFFSET_NOT_AVAILABLE after an election is LEADER_NOT_AVAILABLE before version 5.
- CORRUPT_MESSAGE where a search by time meets records that cannot be read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.kproto.records import RecordError
from ottla.kproto.schema import Response
from ottla.metadata.acls import AclOperation, AclResource
from ottla.replica.errors import OffsetNotAvailableError, ReplicaError
from ottla.replica.offset_lookup import FoundOffset, OffsetSpec, find_offset, known_offset
from ottla.replica.partition import Isolation
from ottla.runtime.stages import Stages
from ottla.runtime.time_slice import CHUNK_ELEMENTS
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_response_in_steps
from ottla.server.apis.pending import Answer, begin
from ottla.server.apis.rules import Each, Rule, by
from ottla.server.request_metrics import count_errors_of_partitions
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.metadata.image import TopicImage
    from ottla.server.apis.context import RequestContext

API = Api(
    ApiKey.LIST_OFFSETS,
    Rule(each=Each(AclOperation.DESCRIBE, "topics", by(AclResource.TOPIC, "name"))),
    count_errors=count_errors_of_partitions,
)

logger = logging.getLogger(__name__)

_CONSUMER: Final = -1
_DEBUGGING_CONSUMER: Final = -2
_READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, _READ_COMMITTED)
_FIRST_VERSION_WITH_EPOCHS: Final = 4
_FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE: Final = 5

_MIN_VERSIONS: Final[Mapping[int, int]] = {
    OffsetSpec.LATEST: 1,
    OffsetSpec.EARLIEST: 1,
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}


def handle(request: ListOffsetsRequest, context: RequestContext) -> Answer:
    return begin(_handle(request, context))


def _handle(request: ListOffsetsRequest, context: RequestContext) -> Stages[Response | None]:
    if request.isolation_level not in _ISOLATION_LEVELS:
        steps = error_response_in_steps(request, context.header.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
        refused: Response | None = yield partial(context.work.run, steps, counts=False)
        return refused
    number = 0
    topics: dict[str, ListOffsetsTopicResponse] = {}
    answers: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
    for topic in request.topics:
        if not topic.partitions:
            continue
        image = context.broker.metadata.topic(topic.name)
        answered = topics.get(topic.name)
        if answered is None:
            answered = topics[topic.name] = ListOffsetsTopicResponse(name=topic.name)
        for asked in topic.partitions:
            number += 1
            if number % CHUNK_ELEMENTS == 0 and context.work.is_due(CHUNK_ELEMENTS):
                yield partial(context.work.charge, 0)
            key = (topic.name, asked.partition_index)
            if key in answers:
                _take_back(answers[key])
                continue
            answers[key] = answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            answered.partitions.append(answer)
            if not _is_supported(asked.timestamp, context.header.api_version):
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            elif image is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                unopened = context.broker.replica_manager.unopened
                if unopened.left:
                    yield from unopened.until_open([(image.topic_id, asked.partition_index)])
                search = _answer(request, asked, image, context, answer)
                if search is not None:
                    yield from search
    return ListOffsetsResponse(topics=list(topics.values()))


def _take_back(answer: ListOffsetsPartitionResponse) -> None:
    """Refuse a partition that is named again, whatever was found for it."""
    nothing = ListOffsetsPartitionResponse()
    answer.error_code = ErrorCode.INVALID_REQUEST
    answer.timestamp, answer.offset, answer.leader_epoch = nothing.timestamp, nothing.offset, nothing.leader_epoch


def _is_supported(timestamp_ms: int, version: int) -> bool:
    if timestamp_ms >= 0:
        return True
    min_version = _MIN_VERSIONS.get(timestamp_ms)
    return min_version is not None and version >= min_version


def _answer(
    request: ListOffsetsRequest,
    asked: ListOffsetsPartition,
    topic: TopicImage,
    context: RequestContext,
    answer: ListOffsetsPartitionResponse,
) -> Stages[None] | None:
    """Fill the answer, or return what fills it after a search by time."""
    isolation, may_read_from_follower = _isolation(request), request.replica_id == _DEBUGGING_CONSUMER
    try:
        partition = context.broker.replica_manager.get_partition(topic.topic_id, asked.partition_index)
        found = known_offset(partition, asked.timestamp, isolation, asked.current_leader_epoch, may_read_from_follower)
    except (ReplicaError, StorageError) as error:
        answer.error_code = _code(error, context.header.api_version)
        return None
    if found is None:
        search = find_offset(
            partition,
            asked.timestamp,
            isolation=isolation,
            current_leader_epoch=asked.current_leader_epoch,
            may_read_from_follower=may_read_from_follower,
        )
        return _fill_by_search(search, asked, topic, context, answer)
    _fill(answer, found, context)
    return None


def _fill_by_search(
    search: Stages[FoundOffset],
    asked: ListOffsetsPartition,
    topic: TopicImage,
    context: RequestContext,
    answer: ListOffsetsPartitionResponse,
) -> Stages[None]:
    try:
        _fill(answer, (yield from search), context)
    except (ReplicaError, StorageError) as error:
        answer.error_code = _code(error, context.header.api_version)
    except RecordError as error:
        # The producer itself sent damaged records, and they were acknowledged unread: the search cannot get past them.
        answer.error_code = ErrorCode.CORRUPT_MESSAGE
        name = f"{topic.name}-{asked.partition_index}"
        keys = {"topic": topic.name, "partition": asked.partition_index, "error": str(error)}
        logger.warning("%s cannot be searched by time: damaged records: %s", name, error, extra=keys)


def _fill(answer: ListOffsetsPartitionResponse, found: FoundOffset, context: RequestContext) -> None:
    answer.timestamp, answer.offset, leader_epoch = found
    if context.header.api_version >= _FIRST_VERSION_WITH_EPOCHS:
        answer.leader_epoch = leader_epoch


def _isolation(request: ListOffsetsRequest) -> Isolation:
    if request.replica_id != _CONSUMER:
        return Isolation.LOG_END
    return Isolation.TXN_COMMITTED if request.isolation_level == _READ_COMMITTED else Isolation.HIGH_WATERMARK


def _code(error: Exception, version: int) -> ErrorCode:
    if isinstance(error, OffsetNotAvailableError) and version < _FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    code = error_code(error)
    # Topics have names here: if one's id is gone, so is the topic.
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if code is ErrorCode.UNKNOWN_TOPIC_ID else code
