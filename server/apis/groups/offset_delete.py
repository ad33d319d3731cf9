"""OffsetDelete (47): forget offsets of a group (KIP-496); topics that its members read are refused."""

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.offset_and_metadata import TopicPartition
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.groups.answered_topics import AnsweredTopics
from ottla.server.apis.rules import Each, Named, Rule, by

API = Api(
    ApiKey.OFFSET_DELETE,
    Rule(
        [Named(AclOperation.DELETE, AclResource.GROUP, "group_id")],
        Each(AclOperation.READ, "topics", by(AclResource.TOPIC, "name")),
    ),
)


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    image, work = context.broker.metadata, context.work
    codes: dict[TopicPartition, ErrorCode] = {}
    known: list[TopicPartition] = []
    topics: AnsweredTopics[str, TopicPartition] = AnsweredTopics()
    for topic in request.topics:
        topics.begin(topic.name, is_unknown=image.topic(topic.name) is None)
        async for asked in work.over(topic.partitions):
            partition = TopicPartition(topic.name, asked.partition_index)
            exists = image.partition(*partition) is not None
            if exists and partition not in codes:
                known.append(partition)
            codes[partition] = ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.add(partition, is_refused=not exists)
    work.leave(codes, known)
    try:
        refused = await context.broker.group_coordinator.offsets.delete(request.group_id, known)
    except CoordinatorError as error:
        return OffsetDeleteResponse(error_code=error_code(error))
    async for partition, reason in work.over(refused.items(), counts=False):
        codes[partition] = error_code(reason)
    work.leave(refused)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=partition.partition, error_code=codes[partition])
                    async for partition in work.over(partitions)
                ],
            )
            async for name, partitions in work.over(topics.in_order())
        ]
    )
