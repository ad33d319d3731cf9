"""DescribeTransactions (API key 65): the state of transactional ids (KIP-664).

Promises: by their coordinator: state, producer id and epoch, timeout, start time and partitions;
TRANSACTIONAL_ID_NOT_FOUND for an unknown one.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Request, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    transactional_ids: list[str] = array(string, "0+")


class TopicData(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class TransactionState(Struct):
    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")


class DescribeTransactionsResponse(Response, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")
