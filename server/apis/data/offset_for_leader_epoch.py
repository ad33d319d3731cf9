"""OffsetForLeaderEpoch (23): where a leader epoch ended, by which consumers and followers find a truncation (KIP-320).

- The largest epoch up to the one asked for, and the offset after its last record; for the current epoch the log end.
- An epoch beyond the current one, or -1, is answered with -1, -1 and no error.
- The client's own idea of the current epoch is judged first: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
- Only the leader answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.replica.errors import ReplicaError, UnknownTopicOrPartitionError
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Each, Rule, by
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.metadata.image import TopicImage
    from ottla.server.apis.context import RequestContext

API = Api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    Rule(
        each=Each(AclOperation.DESCRIBE, "topics", by(AclResource.TOPIC, "topic"), unless=AclOperation.CLUSTER_ACTION)
    ),
)


async def handle(request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        image = context.broker.metadata.topic(topic.topic)
        response.topics.append(
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[await _answer(asked, image, context) for asked in topic.partitions]
            )
        )
    return response


async def _answer(asked: OffsetForLeaderPartition, topic: TopicImage | None, context: RequestContext) -> EpochEndOffset:
    await context.work.charge()
    answer = EpochEndOffset(partition=asked.partition)
    if topic is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    try:
        manager = context.broker.replica_manager
        await manager.unopened.wait([(topic.topic_id, asked.partition)])
        partition = manager.get_partition(topic.topic_id, asked.partition)
        partition.require_readable(asked.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    except UnknownTopicOrPartitionError:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except (ReplicaError, StorageError) as error:
        answer.error_code = error_code(error)
    return answer
