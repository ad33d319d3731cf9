"""RenewDelegationToken (API key 39): let a delegation token live longer (KIP-48).

Promises: the new expiry, at most the token's maximum; only by its owner or one of its renewers, named by
its HMAC.

Versions: 2 is flexible.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(Request, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+"):
    hmac: bytes = bytes_("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Response, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
