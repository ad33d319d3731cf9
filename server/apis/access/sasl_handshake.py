"""SaslHandshake (17): choose a SASL mechanism.

- The answer lists what the listener has; another mechanism is UNSUPPORTED_SASL_MECHANISM, and the connection is closed.
- ILLEGAL_SASL_STATE on a listener without SASL, and if a client is already authenticated; but if its session has an
  end, it may start over at any time, once a second (KIP-368).
- After version 0 the mechanism's messages come without a header.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.sasl import Sasl
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import ANYBODY

API = Api(ApiKey.SASL_HANDSHAKE, ANYBODY)


async def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    sasl = context.connection.sasl
    if sasl is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return await answer(request, sasl, context.header.api_version)


async def answer(request: SaslHandshakeRequest, sasl: Sasl, version: int) -> SaslHandshakeResponse:
    """The answer of a listener that has SASL."""
    code = await sasl.handshake(request.mechanism, version)
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        return SaslHandshakeResponse(error_code=code)
    return SaslHandshakeResponse(error_code=code, mechanisms=sasl.mechanisms)
