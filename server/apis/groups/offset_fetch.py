"""OffsetFetch (9): how far groups have read.

- Up to version 7 one group is asked for, from version 8 several, each with an error of its own; null topics mean all
  that the group has committed (from version 2). From version 10 topics are named by id.
- No committed offset is -1 with leader epoch -1 and metadata "", not an error; nor is a group that does not exist.
- Topics that are not known by their id, or may not be described, come last. What is named twice is answered twice, and
  a topic of which no partition is named with none.
- `require_stable` (version 7): UNSTABLE_OFFSET_COMMIT where a transaction may still change the offset (KIP-447).
- Version 1 has no place for a group's error except its partitions.
- A broker that is cut off from the metadata answers once it is sure to coordinate the groups still, or NOT_COORDINATOR.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.coordinator.errors import CoordinatorError, GroupNotAuthorizedError
from ottla.coordinator.group.offset_and_metadata import CommittedOffset, TopicPartition
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.kproto.schema import ZERO_UUID
from ottla.metadata.acls import AclOperation, AclResource
from ottla.runtime.time_slice import chunks
from ottla.security.access import Access
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import BY_HANDLER

P = TypeVar("P")

API = Api(ApiKey.OFFSET_FETCH, BY_HANDLER)

_FIRST_VERSION_BY_ID: Final = 10


class _Answer(NamedTuple):
    """The answer for one partition, in every version."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE


_Found = dict[TopicPartition, _Answer]


class _Topic(NamedTuple):
    """A topic that is asked for, or of which all that is committed is asked for. `error_code` if it cannot be."""

    name: str
    topic_id: UUID
    partitions: Sequence[TopicPartition]
    error_code: ErrorCode = ErrorCode.NONE


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    version = context.header.api_version
    if version >= 8:
        try:
            await _confirm((group.group_id for group in request.groups), context)
        except CoordinatorError as error:
            code = error_code(error)
            groups = context.work.over(request.groups)
            refused = [OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) async for group in groups]
            return OffsetFetchResponse(groups=refused)
        return OffsetFetchResponse(groups=[await _fetch_group(group, request, context) for group in request.groups])
    asked = None
    if request.topics is not None:
        asked = [await _asked(it.name, ZERO_UUID, it.partition_indexes, context) for it in request.topics]
    try:
        await _confirm([request.group_id], context)
        topics, found = await _fetch(request.group_id, asked, request, context)
    except CoordinatorError as error:
        code = error_code(error)
        topics = [topic._replace(error_code=code) for topic in asked or ()] if version < 2 else []
        return OffsetFetchResponse(error_code=code, topics=await _topics(topics, {}, context))
    return OffsetFetchResponse(topics=await _topics(topics, found, context))


async def _confirm(group_ids: Iterable[str], context: RequestContext) -> None:
    """See that no other broker coordinates the groups by now, where this one might not have heard of it."""
    if context.broker.replica_manager.may_be_replaced():
        groups = context.broker.group_coordinator
        ids = context.work.over(group_ids, counts=False)
        partitions = {groups.partition_for(group_id) async for group_id in ids}
        await groups.offsets.confirm(partitions)


async def _asked(
    name: str, topic_id: UUID, indexes: Sequence[int], context: RequestContext, code: ErrorCode = ErrorCode.NONE
) -> _Topic:
    return _Topic(name, topic_id, [TopicPartition(name, index) async for index in context.work.over(indexes)], code)


async def _fetch(
    group_id: str,
    asked: list[_Topic] | None,
    request: OffsetFetchRequest,
    context: RequestContext,
    member: tuple[str | None, int] = (None, -1),
) -> tuple[list[_Topic], _Found]:
    """The topics in the order of the answer, and what is committed. None is asked for all of them."""
    access = context.access
    if access is not None and not access.allows(AclOperation.DESCRIBE, AclResource.GROUP, group_id):
        raise GroupNotAuthorizedError
    groups = context.broker.group_coordinator
    if asked is None:
        partitions = await _all(group_id, context)
    else:
        asked = [_checked(topic, access) for topic in asked]
        partitions = [
            partition
            for topic in asked
            if topic.error_code is ErrorCode.NONE
            async for partition in context.work.over(topic.partitions, counts=False)
        ]
    found: _Found = {}
    # The group may have to answer even if nothing is asked of it.
    for some in chunks(partitions) if partitions else [[]]:
        await context.work.charge(0)
        committed = groups.offsets.fetch(
            group_id, some, require_stable=request.require_stable, member_id=member[0], member_epoch=member[1]
        )
        async for partition, value in context.work.over(committed.items()):
            if value is not None or asked is not None:
                found[partition] = _answer(value)
    context.work.leave(partitions, found)
    if asked is None:
        return [
            _Topic(name, _id(name, context), list(of_topic))
            for name, of_topic in groupby(found, key=lambda partition: partition.topic)
            if access is None or access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name, is_asked=False)
        ], found
    return sorted(asked, key=lambda topic: topic.error_code is not ErrorCode.NONE), found


def _checked(topic: _Topic, access: Access | None) -> _Topic:
    if topic.error_code is not ErrorCode.NONE or access is None:
        return topic
    may = access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, topic.name)
    return topic if may else topic._replace(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def _all(group_id: str, context: RequestContext) -> list[TopicPartition]:
    """The partitions for which the group has offsets, in order."""
    found = context.broker.group_coordinator.offsets.committed_partitions(group_id)
    return [partition async for partition in context.work.over(await context.work.sorted(found), counts=False)]


def _answer(found: CommittedOffset | Exception | None) -> _Answer:
    if found is None:
        return _Answer()
    if isinstance(found, Exception):
        return _Answer(error_code=error_code(found))
    return _Answer(found.offset, found.leader_epoch, found.metadata)


def _of(partition: TopicPartition, topic: _Topic, found: _Found) -> _Answer:
    return found[partition] if topic.error_code is ErrorCode.NONE else _Answer(error_code=topic.error_code)


async def _topics(topics: Sequence[_Topic], found: _Found, context: RequestContext) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=await _partitions(OffsetFetchResponsePartition, topic, found, context)
        )
        for topic in topics
    ]


async def _partitions(kind: Callable[..., P], topic: _Topic, found: _Found, context: RequestContext) -> list[P]:
    """The answers for a topic's partitions, as messages of this class."""
    answered = []
    async for partition in context.work.over(topic.partitions):
        answer = _of(partition, topic, found)
        answered.append(
            kind(
                partition_index=partition.partition,
                committed_offset=answer.offset,
                committed_leader_epoch=answer.leader_epoch,
                metadata=answer.metadata,
                error_code=answer.error_code,
            )
        )
    return answered


async def _fetch_group(
    group: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponseGroup:
    by_id = context.header.api_version >= _FIRST_VERSION_BY_ID
    await context.work.charge()
    answered = OffsetFetchResponseGroup(group_id=group.group_id)
    asked: list[_Topic] | None = None
    if group.topics is not None:
        asked = []
        for topic in group.topics:
            name = _name(topic.topic_id, context) if by_id else topic.name
            code = ErrorCode.NONE if name is not None else ErrorCode.UNKNOWN_TOPIC_ID
            asked.append(await _asked(name or "", topic.topic_id, topic.partition_indexes, context, code))
    try:
        topics, found = await _fetch(group.group_id, asked, request, context, (group.member_id, group.member_epoch))
    except CoordinatorError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error_code(error))
    for each in topics:
        if asked is None and by_id and each.topic_id == ZERO_UUID:
            continue  # it was deleted
        partitions = await _partitions(OffsetFetchResponsePartitions, each, found, context)
        answered.topics.append(OffsetFetchResponseTopics(name=each.name, topic_id=each.topic_id, partitions=partitions))
    return answered


def _name(topic_id: UUID, context: RequestContext) -> str | None:
    topic = context.broker.metadata.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _id(name: str, context: RequestContext) -> UUID:
    topic = context.broker.metadata.topic(name)
    return ZERO_UUID if topic is None else topic.topic_id
