"""ListTransactions (API key 66): the transactions that this broker coordinates (KIP-664).

Promises: those that match all filters, Dead ones left out; states that the broker does not know are listed
in the answer. A client asks every broker.

Versions: 1 filters by the time a transaction has been open, -1 for no such filter (KIP-994); 2 by a regular
expression for the id, INVALID_REGULAR_EXPRESSION when it is none (KIP-1152).
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Request, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"):
    state_filters: list[str] = array(string, "0+")
    producer_id_filters: list[int] = array(int64, "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


class ListTransactionsResponse(Response, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = array(string, "0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")
