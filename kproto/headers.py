"""The headers in front of every request and response body.

A request header is version 2 when its body is flexible, else 1; version 2 still writes `client_id` as a classic string
(KIP-482), since its receiver may not know the version. A response header is version 1 when its body is flexible, else
0, except that ApiVersions always answers with version 0 (KIP-511). The header's version is not on the wire: it follows
from API key and version.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.compiler.runtime import read_unknown_tags
from ottla.kproto.errors import DecodeError, EncodeError, UnsupportedApiError
from ottla.kproto.schema import Message, TaggedField, int16, int32, string
from ottla.kproto.text import ERRORS

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer

_new = object.__new__
_REQUEST_START = struct.Struct(">hhi")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_UP_TO_CLIENT_ID = struct.Struct(">hhih")
_CLIENT_ID_POS = _UP_TO_CLIENT_ID.size
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """What a request says of itself; Kafka names the first two request_api_key and request_api_version."""

    api_key: int = int16("0+")
    api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable="1+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """What a response says of itself: which request it answers."""

    correlation_id: int = int32("0+")


def parse_request_header(buf: Buffer, pos: int = 0) -> tuple[RequestHeader, int]:
    """Read the header at `pos`; returns it and where the body starts. `header.api_key` is an `ApiKey`.

    Raises UnsupportedApiError, which carries what an answer needs, for a key or version that Kafka 4.4 does not serve.
    """
    # Written out, for it is done for every request: calls cost.
    try:
        try:
            api_key, api_version, correlation_id, length = _UP_TO_CLIENT_ID.unpack_from(buf, pos)
        except struct.error:
            # Of what is not served no more than this has to be there.
            api_key, api_version, correlation_id = _REQUEST_START.unpack_from(buf, pos)
            length = None
        served = _SERVED.get((api_key, api_version))
        if served is None:
            raise UnsupportedApiError(api_key, api_version, correlation_id)
        key, is_flexible = served
        if length is None:
            raise DecodeError("the request header is malformed: it ends too early")
        pos += _CLIENT_ID_POS
        client_id = None
        if length >= 0:
            end = pos + length
            if end > len(buf):
                raise DecodeError("the client id is longer than the request")
            client_id = str(buf[pos:end], "utf-8", ERRORS)
            pos = end
        tags: tuple[TaggedField, ...] = ()
        if is_flexible:
            pos += 1
            if buf[pos - 1]:
                tags, pos = read_unknown_tags(buf, pos, buf[pos - 1], len(buf))
    except (struct.error, IndexError) as error:
        raise DecodeError("the request header is malformed: it ends too early") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"the request header is malformed: {error.reason}") from error
    header = _new(RequestHeader)
    header.api_key = key
    header.api_version = api_version
    header.correlation_id = correlation_id
    header.client_id = client_id
    header.unknown_tagged_fields = tags
    return header, pos


#: The key, and whether a version is flexible, of every key and version that Kafka 4.4 serves.
_SERVED = {
    (int(key), version): (key, key.is_flexible(version))
    for key in ApiKey
    for version in range(key.valid_versions[0], key.valid_versions[1] + 1)
    if key.is_valid(version)
}


def build_request_header(
    api_key: ApiKey, api_version: int, correlation_id: int, client_id: str | None = None
) -> bytes:  # fmt: skip
    """The header of a request in that version of the API. Raises EncodeError for what does not fit."""
    try:
        encoded = b"" if client_id is None else client_id.encode()
        length = -1 if client_id is None else len(encoded)
        start = _REQUEST_START.pack(api_key, api_version, correlation_id) + _CLIENT_ID_LENGTH.pack(length)
    except (struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"the request header cannot be written: {error}") from error
    return start + encoded + (b"\x00" if ApiKey(api_key).is_flexible(api_version) else b"")


def parse_response_header(api_key: ApiKey, api_version: int, buf: Buffer, pos: int = 0) -> tuple[ResponseHeader, int]:
    """Read the header of an answer to a request of that key and version; returns it and where the body starts."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buf, pos)
        pos += _CORRELATION_ID.size
        tags: tuple[TaggedField, ...] = ()
        if ApiKey(api_key).response_header_version(api_version) == 1:
            tags, pos = read_unknown_tags(buf, pos + 1, buf[pos], len(buf))
    except (struct.error, IndexError) as error:
        raise DecodeError("the response header is malformed: it ends too early") from error
    return ResponseHeader(correlation_id=correlation_id, unknown_tagged_fields=tags), pos


def build_response_header(api_key: ApiKey, api_version: int, correlation_id: int) -> bytes:
    """The header of the answer to a request of that key and version."""
    try:
        start = _CORRELATION_ID.pack(correlation_id)
    except struct.error as error:
        raise EncodeError(f"the response header cannot be written: {error}") from error
    return start + b"\x00" if ApiKey(api_key).response_header_version(api_version) == 1 else start
