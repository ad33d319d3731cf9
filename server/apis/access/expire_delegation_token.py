"""ExpireDelegationToken (40): its owner or a renewer ends a token, at once or after a while (KIP-48)."""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.access.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.metadata.errors import DelegationTokenRequestNotAllowedError
from ottla.metastore.errors import MetadataError
from ottla.server.apis.access.token_requests import NO_TIMESTAMP_MS, check_connection, requester_of, tokens_of
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import BY_HANDLER

API = Api(ApiKey.EXPIRE_DELEGATION_TOKEN, BY_HANDLER, forwarded=True)


async def handle(request: ExpireDelegationTokenRequest, context: RequestContext) -> ExpireDelegationTokenResponse:
    try:
        check_connection(context)
        until_ms = await tokens_of(context).expire(
            requester_of(context), bytes(request.hmac), request.expiry_time_period_ms
        )
    except MetadataError as error:
        until_ms = NO_TIMESTAMP_MS if isinstance(error, DelegationTokenRequestNotAllowedError) else 0
        return ExpireDelegationTokenResponse(error_code=error_code(error), expiry_timestamp_ms=until_ms)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=until_ms)
