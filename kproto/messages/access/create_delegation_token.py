"""CreateDelegationToken (API key 38): a token by which workers may authenticate as a principal (KIP-48).

Promises: token id and HMAC, which are SCRAM user and password from then on; `max_lifetime_ms` -1 means the
broker's limit. Not allowed on connections that were authenticated by a token themselves:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Versions: 2 is flexible; 3 may create the token for another owner (KIP-373).
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, bytes_, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class CreateDelegationTokenRequest(Request, api_key=ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "0+")
    max_lifetime_ms: int = int64("0+")


class CreateDelegationTokenResponse(Response, api_key=ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+"):
    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = bytes_("0+")
    throttle_time_ms: int = int32("0+")
