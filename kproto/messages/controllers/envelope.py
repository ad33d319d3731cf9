"""Envelope (API key 58): a request that a broker forwards to the controller with the client's principal and
address (KIP-590).

Promises: the answer holds the whole response of the request inside. PRINCIPAL_DESERIALIZATION_FAILURE when
the principal cannot be read.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, bytes_, int16


class EnvelopeRequest(Request, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    request_data: bytes = bytes_("0+")
    request_principal: bytes | None = bytes_("0+", nullable="0+")
    client_host_address: bytes = bytes_("0+")


class EnvelopeResponse(Response, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    response_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    error_code: int = int16("0+")
