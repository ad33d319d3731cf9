"""AddOffsetsToTxn (API key 25)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    """The request of AddOffsetsToTxn."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


class AddOffsetsToTxnResponse(Response, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    """The answer to AddOffsetsToTxn."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
