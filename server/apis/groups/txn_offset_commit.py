"""TxnOffsetCommit (28): commit a group's offsets as part of a transaction.

- The offsets count when the transaction is committed, and are UNSTABLE_OFFSET_COMMIT for careful readers until then.
- From version 3 the member and generation are checked, so that zombies of the group are fenced (KIP-447).
- From version 5 the group's partition takes part in the transaction by this request alone (KIP-890).
- From version 6 topics are named by id alone: an unknown id is UNKNOWN_TOPIC_ID. A missing group is then
  GROUP_ID_NOT_FOUND and an old epoch STALE_MEMBER_EPOCH, where older versions say ILLEGAL_GENERATION (KIP-1319).
"""

from typing import Final
from uuid import UUID

from ottla.coordinator.errors import (
    CoordinatorError,
    ProducerFencedError,
    StaleMemberEpochError,
    TopicDeletedError,
    TransactionAbortableError,
)
from ottla.coordinator.group.config import OFFSETS_TOPIC
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.coordinator.group.offsets.commits import Refusals
from ottla.coordinator.replay import Producer
from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.groups.answered_topics import AnsweredTopics
from ottla.server.apis.rules import Each, Named, Rule, by_name_or_id

API = Api(
    ApiKey.TXN_OFFSET_COMMIT,
    Rule(
        [
            Named(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "transactional_id"),
            Named(AclOperation.READ, AclResource.GROUP, "group_id"),
        ],
        Each(AclOperation.READ, "topics", by_name_or_id),
    ),
)

_FIRST_OF_V2: Final = 5
_FIRST_VERSION_BY_ID: Final = 6

Key = tuple[str | UUID, int]
"""A partition as the request names it: by its topic's name or id."""


async def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    image = context.broker.metadata
    by_id = context.header.api_version >= _FIRST_VERSION_BY_ID
    offsets: dict[TopicPartition, OffsetToCommit] = {}
    keys: dict[TopicPartition, Key] = {}
    codes: dict[Key, ErrorCode] = {}
    topics: AnsweredTopics[str | UUID, Key] = AnsweredTopics()
    for topic in request.topics:
        known = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
        topics.begin(topic.topic_id if by_id else topic.name, is_unknown=known is None)
        async for partition in context.work.over(topic.partitions):
            key = _key(topic, partition.partition_index, by_id=by_id)
            if known is None or not 0 <= partition.partition_index < len(known.partitions):
                missing_id = known is None and by_id
                codes[key] = ErrorCode.UNKNOWN_TOPIC_ID if missing_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                codes[key] = ErrorCode.NONE
                committed = TopicPartition(known.name, partition.partition_index)
                keys[committed] = key
                offsets[committed] = OffsetToCommit(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                    topic_id=known.topic_id,
                )
            topics.add(key, is_refused=codes[key] is not ErrorCode.NONE)
    context.work.leave(offsets, codes, keys)
    if offsets:
        code, refused = await _commit(request, context, offsets)
        if code is not ErrorCode.NONE:
            async for partition_key in context.work.over(offsets, counts=False):
                codes[keys[partition_key]] = code
        async for partition_key, reason in context.work.over(refused.items(), counts=False):
            is_deleted = isinstance(reason, TopicDeletedError) and by_id
            codes[keys[partition_key]] = ErrorCode.UNKNOWN_TOPIC_ID if is_deleted else error_code(reason)
    return await _response(topics, codes, context)


def _key(topic: TxnOffsetCommitRequestTopic, index: int, *, by_id: bool) -> Key:
    return (topic.topic_id if by_id else topic.name, index)


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
                generation_id=request.generation_id_or_member_epoch,
                producer=Producer(request.producer_id, request.producer_epoch),
                knows_epochs=context.header.api_version >= _FIRST_VERSION_BY_ID,
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
        await broker.transaction_verifier.verify(request.transactional_id, producer, [partition], joins=joins)
    ).values():
        raise error


def _code(error: CoordinatorError, version: int) -> ErrorCode:
    if isinstance(error, ProducerFencedError):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(error, StaleMemberEpochError) and version < _FIRST_VERSION_BY_ID:
        return ErrorCode.ILLEGAL_GENERATION
    if isinstance(error, TransactionAbortableError) and version < _FIRST_OF_V2 - 1:
        return ErrorCode.INVALID_TXN_STATE
    return error_code(error)


async def _response(
    topics: AnsweredTopics[str | UUID, Key], codes: dict[Key, ErrorCode], context: RequestContext
) -> TxnOffsetCommitResponse:
    response = TxnOffsetCommitResponse()
    for name, keys in topics.in_order():
        partitions = [
            TxnOffsetCommitResponsePartition(partition_index=key[1], error_code=codes[key])
            async for key in context.work.over(keys)
        ]
        response.topics.append(
            TxnOffsetCommitResponseTopic(topic_id=name, partitions=partitions)
            if isinstance(name, UUID)
            else TxnOffsetCommitResponseTopic(name=name, partitions=partitions)
        )
    return response
