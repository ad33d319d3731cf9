"""AddPartitionsToTxn (24): let partitions take part in a transaction.

- Versions 0 to 3 come from clients, one transaction each; the transaction begins with the first partitions. If one
  partition does not exist, none is added: it answers UNKNOWN_TOPIC_OR_PARTITION, the others OPERATION_NOT_ATTEMPTED.
  Internal topics, and mirrors of another cluster's topics, are TOPIC_AUTHORIZATION_FAILED.
- Versions 4 and 5 come from brokers, several transactions at once, and may only ask whether partitions take part:
  TRANSACTION_ABORTABLE if not (KIP-890).
- A partition that is named twice is answered once where the partitions may have different answers, and twice where they
  have the same one. Kafka keeps the former in a map, and the latter in the shape of the request.
- Fenced producers get INVALID_PRODUCER_EPOCH before version 2, PRODUCER_FENCED from then on (KIP-588).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import trio

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Cluster, Named, Rule
from ottla.server.apis.transaction_errors import fenced_before

API = Api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    Rule(
        [
            Cluster([AclOperation.CLUSTER_ACTION], since=4),
            Named(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "v3_and_below_transactional_id", until=3),
        ]
    ),
)

_FIRST_BATCHED: Final = 4
_FIRST_FENCED: Final = 2
_FIRST_OF_V2: Final = 5
#: Transactions of one request that are stored together.
_TRANSACTIONS_A_WRITE: Final = 64


@dataclass(frozen=True)
class _Codes:
    """The answer for each partition: `others`, unless it is named. Without `named` all have the same."""

    others: ErrorCode
    named: Mapping[Partition, ErrorCode] | None = None

    def of(self, partition: Partition) -> ErrorCode:
        return self.others if self.named is None else self.named.get(partition, self.others)


async def handle(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
    if context.header.api_version < _FIRST_BATCHED:
        asked = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        (result,) = await _some([asked], context)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            result
            for first in range(0, len(request.transactions), _TRANSACTIONS_A_WRITE)
            for result in await _some(request.transactions[first : first + _TRANSACTIONS_A_WRITE], context)
        ]
    )


async def _some(
    transactions: Sequence[AddPartitionsToTxnTransaction], context: RequestContext
) -> Sequence[AddPartitionsToTxnResult]:
    """The transactions of several producers: each waits only for its own commit."""
    asked = [await _Asked.of(transaction, context) for transaction in transactions]
    async with trio.open_nursery() as nursery:
        for one in asked:
            nursery.start_soon(one.add, context)
    return [
        AddPartitionsToTxnResult(
            transactional_id=one.transaction.transactional_id, topic_results=await one.answer(context)
        )
        for one in asked
    ]


class _Asked:
    """One transaction: the codes of its partitions, once everything is done."""

    def __init__(self, transaction: AddPartitionsToTxnTransaction, partitions: Sequence[Partition]) -> None:
        self.transaction = transaction
        self._partitions = partitions
        self._codes: _Codes | None = None

    @classmethod
    async def of(cls, transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> Self:
        partitions = [
            Partition(topic.name, index)
            for topic in transaction.topics
            async for index in context.work.over(topic.partitions)
        ]
        asked = cls(transaction, partitions)
        image = context.broker.metadata
        from_client = context.header.api_version < _FIRST_BATCHED
        closed = await _closed_topics(transaction, context) if from_client else frozenset[str]()
        refused = {
            partition: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if partition.topic in closed
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            async for partition in context.work.over(partitions)
            if image.partition(*partition) is None or partition.topic in closed
        }
        context.work.leave(partitions, refused)
        if refused:
            asked._codes = _Codes(ErrorCode.OPERATION_NOT_ATTEMPTED, refused)
        elif transaction.verify_only:
            refusal = await _refusal(transaction, context)
            verified = {it: refusal or _verify(transaction, it, context) async for it in context.work.over(partitions)}
            context.work.leave(verified)
            asked._codes = _Codes(ErrorCode.NONE, verified)
        return asked

    async def add(self, context: RequestContext) -> None:
        """Let the partitions take part, unless all of them already do or cannot."""
        if self._codes is None:
            self._codes = _Codes(await _add(self.transaction, self._partitions, context))

    async def answer(self, context: RequestContext) -> list[AddPartitionsToTxnTopicResult]:
        assert self._codes is not None
        if self._codes.named is None:
            return await _answer(self.transaction.topics, self._codes, context)
        once: dict[str, dict[int, None]] = {}
        async for partition in context.work.over(self._partitions):
            once.setdefault(partition.topic, {})[partition.partition] = None
        topics = [AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, indexes in once.items()]
        return await _answer(topics, self._codes, context)


async def _closed_topics(asked: AddPartitionsToTxnTransaction, context: RequestContext) -> frozenset[str]:
    """Topics to which no client, or not this one, may write in a transaction."""
    image, access = context.broker.metadata, context.access

    def is_closed(name: str) -> bool:
        topic = image.topic(name)
        if topic is not None and topic.is_mirrored:
            return True
        return access is not None and not access.allows(AclOperation.WRITE, AclResource.TOPIC, name)

    names = {it.name async for it in context.work.over(asked.topics, counts=False) if is_closed(it.name)}
    return INTERNAL_TOPICS.union(names)


async def _refusal(asked: AddPartitionsToTxnTransaction, context: RequestContext) -> ErrorCode:
    """NONE, unless another broker may coordinate the transactional id by now."""
    try:
        await context.broker.transaction_coordinator.confirm(asked.transactional_id)
    except CoordinatorError as error:
        return error_code(error)
    return ErrorCode.NONE


def _verify(asked: AddPartitionsToTxnTransaction, partition: Partition, context: RequestContext) -> ErrorCode:
    try:
        context.broker.transaction_coordinator.verify(asked.transactional_id, _producer(asked), partition)
    except CoordinatorError as error:
        return error_code(error)
    return ErrorCode.NONE


async def _add(
    asked: AddPartitionsToTxnTransaction, partitions: Sequence[Partition], context: RequestContext
) -> ErrorCode:
    version = context.header.api_version
    try:
        await context.broker.transaction_coordinator.add_partitions(
            asked.transactional_id, _producer(asked), partitions, 2 if version >= _FIRST_OF_V2 else 0
        )
    except CoordinatorError as error:
        return fenced_before(error, version, _FIRST_FENCED)
    return ErrorCode.NONE


def _producer(asked: AddPartitionsToTxnTransaction) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)


async def _answer(
    topics: Sequence[AddPartitionsToTxnTopic], codes: _Codes, context: RequestContext
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes.of(Partition(topic.name, index))
                )
                async for index in context.work.over(topic.partitions)
            ],
        )
        async for topic in context.work.over(topics)
    ]
