"""AddOffsetsToTxn (API key 25): a group whose offsets a transaction is going to commit.

Promises: the group's partition of `__consumer_offsets` becomes part of the transaction. With transactions
v2 clients leave it out, and TxnOffsetCommit 5 does the same (KIP-890).

Versions: 2 permits PRODUCER_FENCED; 3 is flexible; 4 permits TRANSACTION_ABORTABLE.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


class AddOffsetsToTxnResponse(Response, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
