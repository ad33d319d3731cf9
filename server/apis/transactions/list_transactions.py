"""ListTransactions (66): the transactional ids of this broker (KIP-664).

- Filters by state (unknown names are told back), producer id, from version 1 by the least time in ms since the last
  transaction began (KIP-994), from version 2 by a regular expression over the id, which RE2 evaluates (KIP-1152).
"""

from typing import Any

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.topics import compile_regex
from ottla.coordinator.transaction.state import Transaction, TransactionStatus
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.transactions.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ottla.metadata.acls import AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Left, Rule

API = Api(
    ApiKey.LIST_TRANSACTIONS, Rule(left=Left("transaction_states", AclResource.TRANSACTIONAL_ID, "transactional_id"))
)


async def handle(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    titles = {status.title for status in TransactionStatus}
    states = {state async for state in context.work.over(request.state_filters)}
    wanted = states & titles
    producer_ids = {producer_id async for producer_id in context.work.over(request.producer_id_filters)}
    try:
        pattern = compile_regex(request.transactional_id_pattern) if request.transactional_id_pattern else None
        transactions = context.broker.transaction_coordinator.list_transactions()
    except CoordinatorError as error:
        return ListTransactionsResponse(error_code=error_code(error))
    response = ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[state async for state in context.work.over(states) if state not in titles],
    )
    if request.state_filters and not wanted:
        return response
    now_ms = context.broker.clock.time_ms()
    response.transaction_states = [
        TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.status.title,
        )
        async for transaction in context.work.over(transactions)
        if (not wanted or transaction.status.title in wanted)
        and (not producer_ids or transaction.producer_id in producer_ids)
        and _is_wanted(transaction, request, pattern, now_ms)
    ]
    return response


def _is_wanted(transaction: Transaction, request: ListTransactionsRequest, pattern: Any, now_ms: int) -> bool:
    # As in Kafka the time counts from the start of the last transaction, whether it is over or not.
    if request.duration_filter >= 0 and now_ms - transaction.start_ms <= request.duration_filter:
        return False
    return pattern is None or pattern.fullmatch(transaction.transactional_id) is not None
