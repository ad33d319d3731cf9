"""Fetch (1): read record batches.

- Versions 4 to 18; sessions from 7 (KIP-227), topics by id from 13, the follower's state from 15.
- Whole batches, the first of which holds the offset that was asked for; at least one batch if there is any, whatever
  the limits. Up to the high watermark, the last stable offset for read_committed, the log end for a follower.
- The answer waits for min_bytes or max_wait_ms; an error is reported at once.
- Records are empty, never null (librdkafka refuses null). With an error all offsets are -1.
- aborted_transactions is null unless the fetch is read_committed; ordered by first offset.
- With `replica.selector.class` a consumer of version 11 or newer is sent to an in-sync replica in its rack, if the
  leader is in another one: it gets no records, and the id of that node (KIP-392). Followers serve up to the high
  watermark that they know; what lies beyond their log's end is OFFSET_OUT_OF_RANGE, and the client asks the leader.
- From version 16 the leader's address stands beside NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951).
- More than 50,000 partitions are INVALID_REQUEST; an isolation level that there is not is UNKNOWN_SERVER_ERROR.
- An error of the session is the whole answer, with session id 0, and the client starts a new session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.hot import fetch as hot
from ottla.kproto.hot.fetched_partition import FetchedPartition
from ottla.kproto.messages.data.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.kproto.schema import ZERO_UUID, Response
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.errors import TopicNotAuthorizedError
from ottla.replica.errors import FetchSessionError, UnknownTopicIdError, UnknownTopicOrPartitionError
from ottla.replica.fetch import NOBODY, FetchParams, FetchResult
from ottla.replica.fetch import FetchPartition as AskedPartition
from ottla.replica.fetch_session import PartitionKey, id_of
from ottla.replica.partition import NO_EPOCH, Isolation
from ottla.runtime.stages import Stages
from ottla.runtime.time_slice import CHUNK_ELEMENTS, TimeSlice
from ottla.server.apis.data.leader_hints import leader_hint
from ottla.server.apis.declaration import Api, general_codec
from ottla.server.apis.errors import error_code, error_response_in_steps
from ottla.server.apis.pending import Answer, begin
from ottla.server.apis.rules import BY_HANDLER
from ottla.server.request_metrics import count_error
from ottla.settings.declared.replication import RACK_AWARE_SELECTOR

if TYPE_CHECKING:
    from ottla.kproto.codec import Steps
    from ottla.security.access import Access
    from ottla.server.apis.context import RequestContext


def _count_errors(errors: dict[int, int], response: FetchResponse) -> None:
    if response.error_code:
        count_error(errors, response.error_code)
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.error_code:
                count_error(errors, partition.error_code)


API = Api(
    ApiKey.FETCH,
    BY_HANDLER,
    may_wait=True,
    codec=general_codec(ApiKey.FETCH, build_parts=hot.build_parts, build_in_steps=hot.build_in_steps),
    count_errors=_count_errors,
)

#: Partitions in one request; a session may have more of them.
MAX_PARTITIONS: Final = 50_000

_READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, _READ_COMMITTED)
_FIRST_VERSION_WITH_SESSIONS: Final = 7
_FIRST_VERSION_BY_ID: Final = 13
_FIRST_VERSION_WITH_RACKS: Final = 11
_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
_FIRST_VERSION_WITH_LEADERS: Final = 16
# Where Kafka says [] instead of null for the aborted transactions.
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_NOT_LOOKED_AT: Final = (UnknownTopicIdError, UnknownTopicOrPartitionError, TopicNotAuthorizedError)
_HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(request: FetchRequest, context: RequestContext) -> Answer:
    return begin(_handle(request, context))


def _handle(request: FetchRequest, context: RequestContext) -> Stages[Response | None]:
    manager = context.broker.replica_manager
    by_id = context.header.api_version >= _FIRST_VERSION_BY_ID
    params = _params(request, context)
    requested = yield from _requested(request, context, by_id=by_id)
    if context.counted is not None:
        context.counted.leave(requested)
    if len(requested) > MAX_PARTITIONS:
        return (yield from _refusal(request, context, ErrorCode.INVALID_REQUEST))
    try:
        fetch = manager.fetch_sessions.open(
            request.session_id,
            request.session_epoch,
            requested,
            _forgotten(request, by_id=by_id),
            uses_topic_ids=by_id,
            replica_id=params.replica_id,
        )
        if not by_id:
            fetch.resolve_names(context.broker.metadata.topics)
        if request.isolation_level not in _ISOLATION_LEVELS and _reads_any(fetch.partitions, context):
            return (yield from _refusal(request, context, ErrorCode.UNKNOWN_SERVER_ERROR))
        if context.access is None:
            results = yield from manager.begin_fetch(params, fetch.partitions, before_wait=context.leave_queue)
        else:
            results = yield from _fetch_allowed(params, fetch.partitions, context, context.access)
        for result in results:
            if result.records is not None:
                context.release_after_send(result)
        session_id, answered = fetch.answer(results)
        answered = _refused_last(answered, results)
    except FetchSessionError as error:
        return FetchResponse(error_code=error_code(error))
    if context.counted is not None:
        context.counted.leave(results)
    context.call_when_kept(partial(fetch.keep, results, answered))
    response = FetchResponse(session_id=session_id)
    yield from _fill(response, fetch.partitions, results, answered, context)
    if params.is_from_follower:
        # Brokers know each other, as in Kafka.
        response.node_endpoints = []
    return response


def _fetch_allowed(
    params: FetchParams, partitions: Sequence[AskedPartition], context: RequestContext, access: Access
) -> Stages[list[FetchResult]]:
    """Fetch from the partitions that the sender may read; a session's partitions are checked each time."""
    topics = context.broker.metadata.topics_by_id
    is_follower = params.is_from_follower
    may_follow = is_follower and access.allows_on_cluster(AclOperation.CLUSTER_ACTION)
    may_read: dict[object, bool] = {}
    allowed = []
    time_slice = TimeSlice()
    for number, partition in enumerate(partitions, 1):
        if number % CHUNK_ELEMENTS == 0 and time_slice.is_over:
            yield time_slice.maybe_yield
        key = partition.name
        if key not in may_read:
            topic = topics.get(partition.topic_id)
            # There is nothing to hide about an id that is not known.
            name = topic.name if topic is not None else key if isinstance(key, str) else None
            may_read[key] = may_follow or (
                not is_follower and (name is None or access.allows(AclOperation.READ, AclResource.TOPIC, name))
            )
        allowed.append(may_read[key])
    manager = context.broker.replica_manager
    if all(allowed):
        return (yield from manager.begin_fetch(params, partitions, before_wait=context.leave_queue))
    asked = [partition for partition, may in zip(partitions, allowed, strict=True) if may]
    read: list[FetchResult] = []
    if asked:
        read = yield from manager.begin_fetch(params, asked, before_wait=context.leave_queue)
    found = iter(read)
    return [next(found) if may else FetchResult(TopicNotAuthorizedError()) for may in allowed]


def _reads_any(partitions: Sequence[AskedPartition], context: RequestContext) -> bool:
    """Whether one of them is there to be read."""
    topics = context.broker.metadata.topics_by_id
    return any(
        0 <= each.partition < len(topic.partitions)
        for each in partitions
        if (topic := topics.get(each.topic_id)) is not None
    )


def _refused_last(answered: Sequence[int], results: Sequence[FetchResult]) -> Sequence[int]:
    """Move unknown and unauthorized partitions behind the rest (Kafka's KafkaApis.handleFetchRequest)."""
    if not any(isinstance(results[position].error, _NOT_LOOKED_AT) for position in answered):
        return answered
    return sorted(answered, key=lambda position: isinstance(results[position].error, _NOT_LOOKED_AT))


def _refusal(request: FetchRequest, context: RequestContext, code: ErrorCode) -> Stages[Response | None]:
    steps = _refusal_in_steps(request, context.header.api_version, code)
    refused: Response | None = yield partial(context.work.run, steps, counts=False)
    return refused


def _refusal_in_steps(request: FetchRequest, version: int, code: ErrorCode) -> Steps[Response | None]:
    response = yield from error_response_in_steps(request, version, code)
    assert isinstance(response, FetchResponse)
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        response.session_id = request.session_id
    for topic in response.responses:
        for number, data in enumerate(topic.partitions):
            data.high_watermark, data.records = -1, b""
            if number % CHUNK_ELEMENTS == 0:
                yield
    return response


def _params(request: FetchRequest, context: RequestContext) -> FetchParams:
    version = context.header.api_version
    replica_id, replica_epoch = request.replica_id, NO_EPOCH
    if version >= _FIRST_VERSION_WITH_REPLICA_STATE:
        replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    max_bytes = min(request.max_bytes, context.broker.config.fetch_max_bytes)
    if replica_id < 0 and context.broker.quotas.is_active:
        max_bytes = int(min(max_bytes, context.broker.quotas.most_fetched_bytes(context)))
    if replica_id >= 0:
        isolation = Isolation.LOG_END
    elif request.isolation_level == _READ_COMMITTED:
        isolation = Isolation.TXN_COMMITTED
    else:
        isolation = Isolation.HIGH_WATERMARK
    return FetchParams(
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation=isolation,
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        may_read_from_follower=replica_id < 0 and version >= _FIRST_VERSION_WITH_RACKS,
        near=_near(request, context) if replica_id < 0 and request.rack_id else NOBODY,
        names_files=context.connection.sends_files,
    )


def _near(request: FetchRequest, context: RequestContext) -> frozenset[int]:
    """The brokers in the client's rack that it can reach, or none if this node is there itself."""
    broker = context.broker
    if broker.config.replica_selector_class != RACK_AWARE_SELECTOR or broker.config.broker_rack == request.rack_id:
        return NOBODY
    return frozenset(
        other.node_id
        for other in broker.metadata.live_brokers()
        if other.rack == request.rack_id and other.endpoint(context.listener) is not None
    )


def _requested(
    request: FetchRequest, context: RequestContext, *, by_id: bool
) -> Stages[dict[PartitionKey, AskedPartition]]:
    topics = context.broker.metadata.topics
    requested: dict[PartitionKey, AskedPartition] = {}
    number = 0
    time_slice = TimeSlice()
    for topic in request.topics:
        name: str | UUID
        if by_id:
            name = topic_id = topic.topic_id
        else:
            name, topic_id = topic.topic, id_of(topics, topic.topic)
        for asked in topic.partitions:
            number += 1
            if number % CHUNK_ELEMENTS == 0 and time_slice.is_over:
                yield time_slice.maybe_yield
            index = asked.partition
            requested[name, index] = AskedPartition(
                topic_id,
                index,
                asked.fetch_offset,
                asked.partition_max_bytes,
                # Any negative one is none, as in Kafka.
                max(asked.current_leader_epoch, NO_EPOCH),
                asked.last_fetched_epoch,
                asked.log_start_offset,
                asked.high_watermark,
                name,
            )
    return requested


def _forgotten(request: FetchRequest, *, by_id: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield (topic.topic_id if by_id else topic.topic), partition


def _code(result: FetchResult, *, by_id: bool) -> ErrorCode:
    if result.error is None:
        return ErrorCode.NONE
    code = error_code(result.error)
    if code is ErrorCode.UNKNOWN_TOPIC_ID and not by_id:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code


def _fill(
    response: FetchResponse,
    partitions: Sequence[AskedPartition],
    results: Sequence[FetchResult],
    answered: Sequence[int],
    context: RequestContext,
) -> Stages[None]:
    """Add the partitions to the response, those of one topic that follow each other under one name."""
    by_id = context.header.api_version >= _FIRST_VERSION_BY_ID
    name: object = None
    answers: list[FetchedPartition | PartitionData] = []
    time_slice = TimeSlice()
    for number, position in enumerate(answered, 1):
        if number % CHUNK_ELEMENTS == 0 and time_slice.is_over:
            yield time_slice.maybe_yield
        asked, result = partitions[position], results[position]
        if asked.name is not name and asked.name != name:
            name = asked.name
            answers = []
            topic = FetchableTopicResponse(
                topic="" if by_id else str(name), topic_id=asked.topic_id if by_id else ZERO_UUID
            )
            topic.partitions = answers  # type: ignore[assignment]
            response.responses.append(topic)
        result.partition_index = asked.partition
        if result.error is None and result.diverging_epoch is None and result.preferred_read_replica < 0:
            answers.append(result)
        else:
            answers.append(_unusual(asked, result, response, context))


def _unusual(
    asked: AskedPartition, result: FetchResult, response: FetchResponse, context: RequestContext
) -> FetchedPartition | PartitionData:
    version = context.header.api_version
    result.error_code = code = _code(result, by_id=version >= _FIRST_VERSION_BY_ID)
    if code in _UNKNOWN:
        result.aborted_transactions = ()
    if code in _HINTED and version >= _FIRST_VERSION_WITH_LEADERS:
        answer = _with_tags(result)
        answer.current_leader = _current_leader(asked, response, context)
        return answer
    if result.diverging_epoch is not None:
        answer = _with_tags(result)
        epoch, end_offset = result.diverging_epoch
        answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return answer
    if result.preferred_read_replica >= 0:
        answer = _with_tags(result)
        answer.aborted_transactions = [] if result.aborted_transactions is not None else None
        answer.preferred_read_replica = result.preferred_read_replica
        return answer
    return result


def _with_tags(ordinary: FetchedPartition) -> PartitionData:
    return PartitionData(
        partition_index=ordinary.partition_index,
        error_code=ordinary.error_code,
        high_watermark=ordinary.high_watermark,
        last_stable_offset=ordinary.last_stable_offset,
        log_start_offset=ordinary.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def _current_leader(asked: AskedPartition, response: FetchResponse, context: RequestContext) -> LeaderIdAndEpoch:
    hint = leader_hint(context, asked.topic_id, asked.partition)
    endpoints = response.node_endpoints
    if hint.endpoint is not None and all(known.node_id != hint.leader_id for known in endpoints):
        endpoints.append(
            NodeEndpoint(
                node_id=hint.leader_id,
                host=hint.endpoint.host,
                port=hint.endpoint.port,
                rack=None if hint.broker is None else hint.broker.rack,
            )
        )
    return LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
