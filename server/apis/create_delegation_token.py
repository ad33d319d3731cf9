"""CreateDelegationToken (38): not over a connection without authentication, as in Kafka."""

from __future__ import annotations

from typing import Final

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.server.apis.context import RequestContext

ANONYMOUS = ("User", "ANONYMOUS")
NEVER_MS = -1

_FIRST_VERSION_WITH_REQUESTER: Final = 3


async def handle(request: CreateDelegationTokenRequest, context: RequestContext) -> CreateDelegationTokenResponse:
    kind, name = ANONYMOUS
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=request.owner_principal_type or kind,
        principal_name=request.owner_principal_name or name,
        issue_timestamp_ms=NEVER_MS,
        expiry_timestamp_ms=NEVER_MS,
        max_timestamp_ms=NEVER_MS,
    )
    if context.header.api_version >= _FIRST_VERSION_WITH_REQUESTER:
        response.token_requester_principal_type = kind
        response.token_requester_principal_name = name
    return response
