"""SaslAuthenticate (API key 36): one step of a SASL exchange (KIP-152).

Promises: bytes in, bytes out, until the mechanism is done; on failure SASL_AUTHENTICATION_FAILED with a
message, after which the connection is closed.

Versions: 1 answers the lifetime of the session in milliseconds, before whose end clients authenticate again
on the same connection (KIP-368); 2 is flexible.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, bytes_, int16, int64, string


class SaslAuthenticateRequest(Request, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    auth_bytes: bytes = bytes_("0+")


class SaslAuthenticateResponse(Response, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = bytes_("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
