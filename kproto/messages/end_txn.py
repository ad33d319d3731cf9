"""EndTxn (API key 26)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """The request of EndTxn."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


class EndTxnResponse(Response, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """The answer to EndTxn."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
