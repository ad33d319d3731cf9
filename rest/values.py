"""Keys and values as JSON carries them, and the bytes that they stand for."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from ottla.rest.errors import bad_request, conversion_failed
from ottla.rest.limits import MAX_DEPTH
from ottla.schemas import framing
from ottla.schemas.codec import AVRO, JSON, PROTOBUF, Codec
from ottla.schemas.errors import ValueMismatchError
from ottla.schemas.json_text import is_deep, value_json

Encode = Callable[[Any], bytes | None]
"""The bytes of a JSON value; None for null. Raises RestError."""

Decode = Callable[[bytes], Any]
"""The JSON value of some bytes. Raises ValueMismatchError."""


class Format(Enum):
    """How keys or values are written in JSON, by Confluent's names."""

    BINARY = "binary"
    JSON = "json"
    STRING = "string"
    AVRO = "avro"
    JSON_SCHEMA = "jsonschema"
    PROTOBUF = "protobuf"

    @property
    def schema_kind(self) -> str | None:
        """The registry's name for it; None where there is no schema."""
        return {Format.AVRO: AVRO, Format.JSON_SCHEMA: JSON, Format.PROTOBUF: PROTOBUF}.get(self)


def parsed(data: bytes) -> Any:
    """A client's value, parsed from JSON. Raises RestError 400."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise bad_request("The request is not UTF-8") from None
    if is_deep(text, MAX_DEPTH):
        raise bad_request(f"The request has more than {MAX_DEPTH} objects and arrays inside each other")
    try:
        return value_json(text)
    except ValueMismatchError as error:
        raise bad_request(f"The request cannot be read: {error}") from None


def encoder(form: Format) -> Encode:
    """How values without a schema are encoded."""
    return {Format.BINARY: _binary, Format.JSON: _json, Format.STRING: _string}[form]


def decoder(form: Format) -> Decode:
    """How values without a schema are shown."""
    return _binary_shown if form is Format.BINARY else value_json


def schema_decoder(codecs: Mapping[int, Codec], form: Format) -> Decode:
    """How values that begin with the id of one of these schemas are shown."""

    def decode(data: bytes) -> Any:
        codec = codecs.get(framing.schema_id(data) or 0)
        if codec is None or codec.kind != form.schema_kind:
            raise ValueMismatchError(f"it does not begin with the id of a schema of {form.schema_kind}")
        return value_json(codec.to_json(data[framing.HEADER_SIZE_BYTES :]))

    return decode


def schema_encoder(codec: Codec, schema_id: int) -> Encode:
    """How values with a schema are encoded, as Confluent's serializers write them."""

    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return framing.framed(schema_id, codec.from_json(_text(value)))
        except ValueMismatchError as error:
            raise conversion_failed(error) from None

    return encode


def base64_bytes(value: Any) -> bytes:
    """The bytes of a text in base64. Raises RestError 422."""
    if not isinstance(value, str):
        raise conversion_failed("binary data is no text in base64")
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        raise conversion_failed(f"{value[:40]!r} is not base64") from None


def _binary_shown(data: bytes) -> str:
    return b64encode(data).decode()


def _binary(value: Any) -> bytes | None:
    return None if value is None else base64_bytes(value)


def _json(value: Any) -> bytes | None:
    return None if value is None else _encoded(_text(value))


def _string(value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise conversion_failed("the data is no text")
    return _encoded(value)


def _text(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise conversion_failed("it has a number that is too large") from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise conversion_failed("half a character of two cannot be written as UTF-8") from None
