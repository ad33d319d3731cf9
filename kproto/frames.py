"""Whole frames: a request with its length and header in front, and what is in an answer's.

For programs that choose each request's version themselves; `ottla.client` negotiates it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto import codec, framing, headers

if TYPE_CHECKING:
    from ottla.kproto.api_keys import ApiKey
    from ottla.kproto.schema import Request, Response
    from ottla.kproto.types import Buffer


def build_request_frame(request: Request, version: int, correlation_id: int, client_id: str | None = None) -> bytes:
    """A request as it goes over the wire. Raises EncodeError for what does not fit the version."""
    header = headers.build_request_header(request.API_KEY, version, correlation_id, client_id)
    parts = codec.build_parts(request, version)
    size_bytes = len(header) + sum(len(part) for part in parts)
    return b"".join((framing.frame_prefix(size_bytes), header, *parts))


def parse_response_frame(api_key: ApiKey, version: int, frame: Buffer) -> tuple[int, Response]:
    """The correlation id and the message of an answer without its length; it must fill the frame."""
    header, body_start = headers.parse_response_header(api_key, version, frame)
    return header.correlation_id, codec.parse_response(api_key, version, frame, body_start)
