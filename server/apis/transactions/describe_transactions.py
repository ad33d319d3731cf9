"""DescribeTransactions (65): the state of transactional ids, and the partitions that take part (KIP-664)."""

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transaction.state import Transaction
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.transactions.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Each, Rule, itself

API = Api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    Rule(each=Each(AclOperation.DESCRIBE, "transactional_ids", itself(AclResource.TRANSACTIONAL_ID))),
)


async def handle(request: DescribeTransactionsRequest, context: RequestContext) -> DescribeTransactionsResponse:
    described = [await _describe(transactional_id, context) for transactional_id in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=described)


async def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    await context.work.charge()
    try:
        transaction: Transaction = context.broker.transaction_coordinator.describe(transactional_id)
    except CoordinatorError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error_code(error))
    await context.work.charge(len(transaction.partitions))
    topics: dict[str, list[int]] = {}
    access = context.access
    async for partition in context.work.over(await context.work.sorted(transaction.partitions), counts=False):
        if access is not None and not access.allows(
            AclOperation.DESCRIBE, AclResource.TOPIC, partition.topic, is_asked=False
        ):
            continue
        topics.setdefault(partition.topic, []).append(partition.partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.status.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
