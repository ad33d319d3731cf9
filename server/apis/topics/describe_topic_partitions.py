"""DescribeTopicPartitions (75): partitions of topics in pages, sorted by topic name (KIP-966).

- No topics means all of them. At most `response_partition_limit` partitions, and never more than
  `max.request.partition.size.limit`; what is left begins at `next_cursor`.
- The lists of eligible leaders are never null, which would crash the Java admin client.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.kproto.schema import Response
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.changes.eligible_leaders import is_enabled, shown
from ottla.metadata.errors import InvalidTopicError
from ottla.metadata.image import PartitionState, TopicImage
from ottla.metadata.topic_names import check_topic_name
from ottla.runtime.work import Work
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_response_in_steps
from ottla.server.apis.results import NOT_ASKED, TOPIC_OPERATIONS
from ottla.server.apis.rules import BY_HANDLER

API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, BY_HANDLER)


async def handle(request: DescribeTopicPartitionsRequest, context: RequestContext) -> Response | None:
    image = context.broker.metadata
    cursor = request.cursor
    if cursor is not None and (
        cursor.partition_index < 0
        or (request.topics and all(topic.name != cursor.topic_name for topic in request.topics))
    ):
        steps = error_response_in_steps(request, context.header.api_version, ErrorCode.INVALID_REQUEST)
        return await context.work.run(steps, counts=False)
    asked = bool(request.topics)
    names = (topic.name for topic in request.topics) if asked else image.topics
    # At least one, or a client that asks for none would never come to an end.
    room = min(max(1, request.response_partition_limit), context.broker.config.max_request_partition_size_limit)
    live = {broker.node_id for broker in image.live_brokers()}
    answers: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor = None
    access = context.access
    last = None
    async for name in context.work.over(await context.work.sorted(names), counts=False):
        if name == last or (cursor is not None and name < cursor.topic_name):
            continue
        last = name
        await context.work.charge()
        if access is not None and not access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name, is_asked=asked):
            if asked:
                answers.append(_refused(name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if room <= 0:
            next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        topic = image.topic(name)
        if topic is None:
            answers.append(_unknown(name))
            continue
        page = topic.partitions[first : first + room]
        answers.append(await _topic(topic, first, page, live, context.work, has_eligible=is_enabled(image)))
        room -= len(page)
        if first + len(page) < len(topic.partitions):
            next_cursor = Cursor(topic_name=name, partition_index=first + len(page))
            break
    if access is not None:
        async for answer in context.work.over(answers, counts=False):
            if answer.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                may = access.operations(TOPIC_OPERATIONS, AclResource.TOPIC, answer.name or "")
                answer.topic_authorized_operations = may
    return DescribeTopicPartitionsResponse(topics=answers, next_cursor=next_cursor)


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_authorized_operations=NOT_ASKED
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except InvalidTopicError:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


async def _topic(
    topic: TopicImage, first: int, page: tuple[PartitionState, ...], live: set[int], work: Work, *, has_eligible: bool
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _partition(number, state, live, has_eligible=has_eligible)
            async for number, state in work.over(enumerate(page, start=first))
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    number: int, state: PartitionState, live: set[int], *, has_eligible: bool
) -> DescribeTopicPartitionsResponsePartition:
    isr, elr = shown(state, enabled=has_eligible)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if state.leader in live else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=state.leader if state.leader in live else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(isr),
        eligible_leader_replicas=list(elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=[replica for replica in state.replicas if replica not in live],
    )
