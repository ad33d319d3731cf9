"""RenewDelegationToken (39): its owner or a renewer lets a token live longer (KIP-48)."""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.access.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.metadata.errors import DelegationTokenRequestNotAllowedError
from ottla.metastore.errors import MetadataError
from ottla.server.apis.access.token_requests import NO_TIMESTAMP_MS, check_connection, requester_of, tokens_of
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import BY_HANDLER

API = Api(ApiKey.RENEW_DELEGATION_TOKEN, BY_HANDLER, forwarded=True)


async def handle(request: RenewDelegationTokenRequest, context: RequestContext) -> RenewDelegationTokenResponse:
    try:
        check_connection(context)
        until_ms = await tokens_of(context).renew(requester_of(context), bytes(request.hmac), request.renew_period_ms)
    except MetadataError as error:
        until_ms = NO_TIMESTAMP_MS if isinstance(error, DelegationTokenRequestNotAllowedError) else 0
        return RenewDelegationTokenResponse(error_code=error_code(error), expiry_timestamp_ms=until_ms)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=until_ms)
