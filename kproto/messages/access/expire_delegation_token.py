"""ExpireDelegationToken (API key 40): let a delegation token end at a time, or at once when that is
negative (KIP-48).

Promises: the expiry that holds from now on; only by its owner or one of its renewers, named by its HMAC.

Versions: 2 is flexible.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(Request, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+"):
    hmac: bytes = bytes_("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Response, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
