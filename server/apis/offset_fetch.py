"""OffsetFetch (9): how far groups have read.

- Up to version 7 one group is asked for, from version 8 several, each with an error of its own; null topics mean all
  that the group has committed (from version 2). From version 10 topics are named by id.
- No committed offset is -1 with leader epoch -1 and metadata "", not an error; nor is a group that does not exist.
- Topics that are not known by their id, or may not be described, come last.
- `require_stable` (version 7): UNSTABLE_OFFSET_COMMIT where a transaction may still change the offset (KIP-447).
- Version 1 has no place for a group's error except its partitions.
- A broker that is cut off from the metadata answers once it is sure to coordinate the groups still, or NOT_COORDINATOR.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.offset_fetch import (
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
from ottla.server.apis.context import RequestContext
from ottla.server.apis.errors import error_code
from ottla.server.coordinator.errors import CoordinatorError, GroupNotAuthorizedError
from ottla.server.coordinator.group.offsets import CommittedOffset, TopicPartition
from ottla.server.metadata.acls import AclOperation, AclResource
from ottla.server.security.access import Access


class _Answer(NamedTuple):
    """The answer for one partition, in every version."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE


_Found = dict[TopicPartition, _Answer]


_AT_ONCE: Final = 128


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
    wanted = await _partitions(((it.name, it.partition_indexes) for it in request.topics or ()), context)
    try:
        await _confirm([request.group_id], context)
        found = await _fetch(request.group_id, None if request.topics is None else wanted, request, context)
    except CoordinatorError as error:
        code = error_code(error)
        failed = dict.fromkeys(wanted, _Answer(error_code=code)) if version < 2 else {}
        context.work.leave(wanted, failed)
        return OffsetFetchResponse(error_code=code, topics=await _topics(failed, context))
    context.work.leave(wanted, found)
    return OffsetFetchResponse(topics=await _topics(found, context))


async def _confirm(group_ids: Iterable[str], context: RequestContext) -> None:
    """See that no other broker coordinates the groups by now, where this one might not have heard of it."""
    if context.broker.replica_manager.may_be_replaced():
        groups = context.broker.group_coordinator
        ids = context.work.over(group_ids, counts=False)
        partitions = {groups.partition_for(group_id) async for group_id in ids}
        await groups.offsets.confirm(partitions)


async def _fetch(
    group_id: str,
    partitions: Sequence[TopicPartition] | None,
    request: OffsetFetchRequest,
    context: RequestContext,
    member: tuple[str | None, int] = (None, -1),
) -> _Found:
    answers: _Found = {}
    refused: _Found = {}
    access = context.access
    if access is not None:
        if not access.allows(AclOperation.DESCRIBE, AclResource.GROUP, group_id):
            raise GroupNotAuthorizedError
        if partitions is not None:
            partitions = await _take_out(partitions, refused, access, context)
    groups = context.broker.group_coordinator
    wanted = await _all(group_id, context) if partitions is None else partitions
    for some in _slices(wanted):
        await context.work.rest(0)
        found = groups.offsets.fetch(
            group_id, some, require_stable=request.require_stable, member_id=member[0], member_epoch=member[1]
        )
        async for partition, value in context.work.over(found.items()):
            if value is not None or partitions is not None:
                answers[partition] = _answer(value)
    if access is None or partitions is not None:
        return answers | refused
    return {
        partition: answer
        async for partition, answer in context.work.over(answers.items())
        if access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, partition.topic, is_asked=False)
    }


async def _all(group_id: str, context: RequestContext) -> list[TopicPartition]:
    """The partitions for which the group has offsets, in order."""
    found = context.broker.group_coordinator.offsets.committed_partitions(group_id)
    return [partition async for partition in context.work.over(await context.work.sorted(found), counts=False)]


async def _take_out(
    partitions: Sequence[TopicPartition], refused: _Found, access: Access, context: RequestContext
) -> list[TopicPartition]:
    """The partitions whose topics may be described; the others are put into `refused`."""
    left = []
    async for partition in context.work.over(partitions, counts=False):
        if access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, partition.topic):
            left.append(partition)
        else:
            refused[partition] = _Answer(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return left


def _slices(partitions: Sequence[TopicPartition]) -> list[Sequence[TopicPartition]]:
    """Slices that are found quickly enough; one empty slice if there are none, since the group may have to answer."""
    return [partitions[first : first + _AT_ONCE] for first in range(0, max(1, len(partitions)), _AT_ONCE)]


def _answer(found: CommittedOffset | Exception | None) -> _Answer:
    if found is None:
        return _Answer()
    if isinstance(found, Exception):
        return _Answer(error_code=error_code(found))
    return _Answer(found.offset, found.leader_epoch, found.metadata)


async def _partitions(topics: Iterable[tuple[str, Sequence[int]]], context: RequestContext) -> list[TopicPartition]:
    return [TopicPartition(name, index) for name, indexes in topics async for index in context.work.over(indexes)]


async def _topics(found: _Found, context: RequestContext) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition.partition,
                    committed_offset=answer.offset,
                    committed_leader_epoch=answer.leader_epoch,
                    metadata=answer.metadata,
                    error_code=answer.error_code,
                )
                async for partition, answer in context.work.over(group)
            ],
        )
        for name, group in groupby(found.items(), key=lambda item: item[0].topic)
    ]


async def _fetch_group(
    group: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponseGroup:
    by_id = context.header.api_version >= 10
    await context.work.rest()
    answered = OffsetFetchResponseGroup(group_id=group.group_id)
    names: dict[str, UUID] = {}
    unknown: list[OffsetFetchResponseTopics] = []
    wanted: list[TopicPartition] | None = None if group.topics is None else []
    for topic in group.topics or ():
        name = _name(topic.topic_id, context) if by_id else topic.name
        if name is None:
            unknown.append(await _unknown_id(topic.topic_id, topic.partition_indexes, context))
        else:
            names[name] = topic.topic_id
            assert wanted is not None
            wanted += await _partitions([(name, topic.partition_indexes)], context)
    try:
        found = await _fetch(group.group_id, wanted, request, context, (group.member_id, group.member_epoch))
    except CoordinatorError as error:
        context.work.leave(wanted or [])
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error_code(error))
    context.work.leave(wanted or [], found)
    for name, partitions in groupby(found.items(), key=lambda item: item[0].topic):
        topic_id = names.get(name) or _id(name, context)
        if topic_id != ZERO_UUID or not by_id:
            answered.topics.append(
                OffsetFetchResponseTopics(
                    name=name,
                    topic_id=topic_id,
                    partitions=[
                        _partition(partition.partition, answer)
                        async for partition, answer in context.work.over(partitions)
                    ],
                )
            )
    answered.topics += unknown
    return answered


def _partition(index: int, answer: _Answer) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=answer.offset,
        committed_leader_epoch=answer.leader_epoch,
        metadata=answer.metadata,
        error_code=answer.error_code,
    )


async def _unknown_id(topic_id: UUID, indexes: Sequence[int], context: RequestContext) -> OffsetFetchResponseTopics:
    unknown = _Answer(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    partitions = [_partition(index, unknown) async for index in context.work.over(indexes)]
    return OffsetFetchResponseTopics(topic_id=topic_id, partitions=partitions)


def _name(topic_id: UUID, context: RequestContext) -> str | None:
    topic = context.broker.metadata.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _id(name: str, context: RequestContext) -> UUID:
    topic = context.broker.metadata.topic(name)
    return ZERO_UUID if topic is None else topic.topic_id
