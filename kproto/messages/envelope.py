"""Envelope (API key 58)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, bytes_, int16


class EnvelopeRequest(Request, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    """The request of Envelope."""

    request_data: bytes = bytes_("0+")
    request_principal: bytes | None = bytes_("0+", nullable="0+")
    client_host_address: bytes = bytes_("0+")


class EnvelopeResponse(Response, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    """The answer to Envelope."""

    response_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    error_code: int = int16("0+")
