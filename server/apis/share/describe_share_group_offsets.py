"""DescribeShareGroupOffsets (90): where share groups are with partitions, and how many records they lack (KIP-932).

- Null topics ask for all that a group has begun with: nothing, if there is no such group. A topic that does not exist,
  or that the group has not begun with, is answered with offset -1: there is nothing to say, which is no error.
- Version 1 adds the lag (KIP-1226): records from the start offset on that are not over; -1 where that is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.share.state import UNINITIALIZED_COUNT, UNINITIALIZED_START_OFFSET, SharePartitionKey
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.kproto.schema import ZERO_UUID
from ottla.metadata.acls import AclOperation, AclResource
from ottla.replica.errors import ReplicaError
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.rules import Each, Rule, by
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.coordinator.group.share.offsets import ShareOffset
    from ottla.metadata.image import TopicImage
    from ottla.server.apis.context import RequestContext

API = Api(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    Rule(each=Each(AclOperation.DESCRIBE, "groups", by(AclResource.GROUP, "group_id"))),
)


_LARGEST: Final = (1 << 63) - 1


async def handle(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[await _describe(group, context) for group in request.groups])


async def _describe(
    asked: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    await context.work.charge()
    image, group_id = context.broker.metadata, asked.group_id
    described = DescribeShareGroupOffsetsResponseGroup(group_id=group_id)
    keys: list[SharePartitionKey] | None = None
    unknown: list[DescribeShareGroupOffsetsResponseTopic] = []
    access = context.access
    if asked.topics is not None:
        keys = []
        async for topic in context.work.over(asked.topics, counts=False):
            if access is not None and not access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, topic.topic_name):
                unknown.append(await _refused(topic.topic_name, topic.partitions, context))
                continue
            known = image.topic(topic.topic_name)
            if known is None:
                unknown.append(await _unknown(topic.topic_name, topic.partitions, context))
            else:
                async for index in context.work.over(topic.partitions, counts=False):
                    keys.append(SharePartitionKey(group_id, known.topic_id, index))
    try:
        offsets = await context.broker.group_coordinator.share_groups.describe_offsets(group_id, keys)
    except CoordinatorError as error:
        described.error_code, described.error_message = error_code(error), error_message(error)
        return described
    context.work.leave(offsets, keys or [])
    topics: dict[UUID, DescribeShareGroupOffsetsResponseTopic] = {}
    for key, offset in offsets.items():
        await context.work.charge()
        image_topic = image.topic_by_id(key.topic_id)
        if image_topic is None:
            continue
        if access is not None and not access.allows(
            AclOperation.DESCRIBE, AclResource.TOPIC, image_topic.name, is_asked=False
        ):
            continue
        answer = topics.get(key.topic_id)
        if answer is None:
            answer = topics[key.topic_id] = DescribeShareGroupOffsetsResponseTopic(
                topic_id=key.topic_id, topic_name=image_topic.name
            )
        answer.partitions.append(await _partition(key, image_topic, offset, context))
    described.topics = [*topics.values(), *unknown]
    return described


async def _partition(
    key: SharePartitionKey, topic: TopicImage, offset: ShareOffset, context: RequestContext
) -> DescribeShareGroupOffsetsResponsePartition:
    answer = DescribeShareGroupOffsetsResponsePartition(
        partition_index=key.partition, start_offset=offset.start_offset, leader_epoch=offset.leader_epoch
    )
    if offset.start_offset != UNINITIALIZED_START_OFFSET and offset.complete != UNINITIALIZED_COUNT:
        try:
            lag = await _end_offset(key, topic, context) - offset.start_offset - offset.complete
            answer.lag = max(-_LARGEST, min(lag, _LARGEST))  # an offset may be set to anything
        except (CoordinatorError, ReplicaError, StorageError) as error:
            answer.error_code, answer.error_message = error_code(error), error_message(error)
    return answer


async def _refused(name: str, partitions: list[int], context: RequestContext) -> DescribeShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_UUID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, start_offset=-1, error_code=code, error_message=code.message
            )
            async for index in context.work.over(partitions)
        ],
    )


async def _end_offset(key: SharePartitionKey, topic: TopicImage, context: RequestContext) -> int:
    """The end of what consumers may see of a partition; its leader is asked."""
    broker = context.broker
    leader = topic.partitions[key.partition].leader
    if leader == broker.node_id:
        await broker.replica_manager.unopened.wait([(key.topic_id, key.partition)])
        return broker.replica_manager.get_partition(key.topic_id, key.partition).log.high_watermark
    return await broker.coordinators.other_share_coordinators.end_offset(leader, topic.name, key.partition)


async def _unknown(name: str, partitions: list[int], context: RequestContext) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_UUID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNINITIALIZED_START_OFFSET)
            async for index in context.work.over(partitions)
        ],
    )
