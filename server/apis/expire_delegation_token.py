"""ExpireDelegationToken (40): not over a connection without authentication, as in Kafka."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.server.apis.context import RequestContext
from ottla.server.apis.create_delegation_token import NEVER_MS


async def handle(request: ExpireDelegationTokenRequest, context: RequestContext) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NEVER_MS
    )
