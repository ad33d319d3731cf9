"""SaslHandshake (API key 17)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """The request of SaslHandshake."""

    mechanism: str = string("0+")


class SaslHandshakeResponse(Response, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """The answer to SaslHandshake."""

    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
