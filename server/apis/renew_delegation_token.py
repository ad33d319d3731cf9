"""RenewDelegationToken (39): not over a connection without authentication, as in Kafka."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.server.apis.context import RequestContext
from ottla.server.apis.create_delegation_token import NEVER_MS


async def handle(request: RenewDelegationTokenRequest, context: RequestContext) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NEVER_MS
    )
