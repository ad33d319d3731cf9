"""SaslHandshake (API key 17): choose the SASL mechanism.

Promises: the enabled mechanisms are always listed; UNSUPPORTED_SASL_MECHANISM when the chosen one is not
among them. After version 0 raw SASL tokens follow on the connection, after version 1 they are wrapped in
SaslAuthenticate (KIP-152).

Never flexible, since old clients negotiate it badly.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Response, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
