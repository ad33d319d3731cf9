"""EndTxn (API key 26): commit or abort a transaction.

Promises: once answered, the outcome is decided and survives every failure; markers reach the partitions
soon after. A repeated request has the same outcome; the opposite one is INVALID_TXN_STATE.

Versions: 2 permits PRODUCER_FENCED; 3 is flexible; 4 permits TRANSACTION_ABORTABLE; 5 is transactions v2:
the epoch rises with each end, and the answer gives the producer id and epoch to go on with (KIP-890).
Version 5 is used only when the finalized feature transaction.version is 2 or above.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


class EndTxnResponse(Response, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
