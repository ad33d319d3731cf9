"""DescribeDelegationToken (41): not over a connection without authentication, as in Kafka."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.server.apis.context import RequestContext


async def handle(request: DescribeDelegationTokenRequest, context: RequestContext) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
