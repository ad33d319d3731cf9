"""CreateDelegationToken (38): not over a connection without authentication, as in Kafka."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.server.apis.context import RequestContext

ANONYMOUS = ("User", "ANONYMOUS")
NEVER_MS = -1


async def handle(request: CreateDelegationTokenRequest, context: RequestContext) -> CreateDelegationTokenResponse:
    kind, name = ANONYMOUS
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=request.owner_principal_type or kind,
        principal_name=request.owner_principal_name or name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=NEVER_MS,
        expiry_timestamp_ms=NEVER_MS,
        max_timestamp_ms=NEVER_MS,
    )
