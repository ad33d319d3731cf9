"""TxnOffsetCommit (28): commit a group's offsets as part of a transaction.

- The offsets count when the transaction is committed, and are UNSTABLE_OFFSET_COMMIT for careful readers until then.
- From version 3 the member and generation are checked, so that zombies of the group are fenced (KIP-447).
- From version 5 the group's partition takes part in the transaction by this request alone (KIP-890).
"""

from typing import Final

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.server.apis.context import RequestContext
from ottla.server.apis.errors import error_code
from ottla.server.coordinator.errors import (
    CoordinatorError,
    GroupIdNotFoundError,
    ProducerFencedError,
    StaleMemberEpochError,
    TransactionAbortableError,
)
from ottla.server.coordinator.group.commits import OffsetToCommit, Refusals
from ottla.server.coordinator.group.config import OFFSETS_TOPIC
from ottla.server.coordinator.group.offsets import TopicPartition
from ottla.server.coordinator.replay import Producer
from ottla.server.coordinator.transaction.state import Partition, ProducerIdAndEpoch

_FIRST_OF_V2: Final = 5


async def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    image = context.broker.metadata
    offsets: dict[TopicPartition, OffsetToCommit] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        async for partition in context.work.over(topic.partitions):
            key = TopicPartition(topic.name, partition.partition_index)
            known = image.topic(topic.name)
            if known is None or image.partition(*key) is None:
                codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                codes[key] = ErrorCode.NONE
                offsets[key] = OffsetToCommit(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                    topic_id=known.topic_id,
                )
    context.work.leave(offsets, codes)
    if offsets:
        code, refused = await _commit(request, context, offsets)
        if code is not ErrorCode.NONE:
            async for key in context.work.over(offsets, counts=False):
                codes[key] = code
        async for key, reason in context.work.over(refused.items(), counts=False):
            codes[key] = error_code(reason)
    return await _response(request, codes, context)


async def _commit(
    request: TxnOffsetCommitRequest, context: RequestContext, offsets: dict[TopicPartition, OffsetToCommit]
) -> tuple[ErrorCode, Refusals]:
    """The code of the commit as a whole, and the partitions that were refused alone."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID, {}
    group_offsets = context.broker.group_coordinator.offsets
    try:
        with group_offsets.watch_transaction(request.group_id, request.producer_id) as guard:
            await _take_part(request, context)
            guard.check()
            refused = await group_offsets.commit(
                request.group_id,
                offsets,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation_id=request.generation_id,
                producer=Producer(request.producer_id, request.producer_epoch),
            )
    except CoordinatorError as error:
        return _code(error, context.header.api_version), {}
    return ErrorCode.NONE, refused


async def _take_part(request: TxnOffsetCommitRequest, context: RequestContext) -> None:
    """Make sure that the group's partition belongs to the transaction: no offset may be left without a marker."""
    broker = context.broker
    partition = Partition(OFFSETS_TOPIC, broker.group_coordinator.partition_for(request.group_id))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    joins = context.header.api_version >= _FIRST_OF_V2
    for error in (
        await broker.participation.require(request.transactional_id, producer, [partition], joins=joins)
    ).values():
        raise error


def _code(error: CoordinatorError, version: int) -> ErrorCode:
    if isinstance(error, ProducerFencedError):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(error, GroupIdNotFoundError | StaleMemberEpochError):
        return ErrorCode.ILLEGAL_GENERATION
    if isinstance(error, TransactionAbortableError) and version < _FIRST_OF_V2 - 1:
        return ErrorCode.INVALID_TXN_STATE
    return error_code(error)


async def _response(
    request: TxnOffsetCommitRequest, codes: dict[TopicPartition, ErrorCode], context: RequestContext
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[TopicPartition(topic.name, partition.partition_index)],
                    )
                    async for partition in context.work.over(topic.partitions)
                ],
            )
            for topic in request.topics
        ]
    )
