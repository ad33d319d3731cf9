"""SaslAuthenticate (36): one message of a SASL mechanism.

- SASL_AUTHENTICATION_FAILED says why, unless that would help somebody who is guessing; then the connection is closed.
- Version 1 tells how long the session lives, 0 forever.
- ILLEGAL_SASL_STATE where no exchange is under way.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.security.sasl import Sasl
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import ANYBODY

API = Api(ApiKey.SASL_AUTHENTICATE, ANYBODY)

_NOT_NOW = "SaslAuthenticate request received after successful authentication"


async def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    return await answer(request, context.connection.sasl, context.header.api_version)


async def answer(request: SaslAuthenticateRequest, sasl: Sasl | None, version: int) -> SaslAuthenticateResponse:
    """The answer of a listener, with SASL or without."""
    if sasl is None or sasl.is_complete:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NOT_NOW)
    result = await sasl.authenticate(bytes(request.auth_bytes), version)
    return SaslAuthenticateResponse(
        error_code=result.code,
        error_message=result.message,
        auth_bytes=result.token,
        session_lifetime_ms=result.session_lifetime_ms,
    )
