"""SaslAuthenticate (API key 36)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, bytes_, int16, int64, string


class SaslAuthenticateRequest(Request, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    """The request of SaslAuthenticate."""

    auth_bytes: bytes = bytes_("0+")


class SaslAuthenticateResponse(Response, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    """The answer to SaslAuthenticate."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = bytes_("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
