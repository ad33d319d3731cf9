"""Protobuf: parsed by protoc itself, which grpcio-tools has as a library, so that no process is started.

A schema is kept as it was sent, with its comments. One that is sent as a serialized FileDescriptorProto in base64, as
Confluent's client for Python does, is kept as text.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from ottla.registry.formats import InvalidSchemaError
from ottla.registry.formats.protobuf_text import text_of
from ottla.schemas.errors import SchemaError
from ottla.schemas.protobuf_files import SCHEMA_FILE, compiled

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")


class ProtobufSchema:
    """A parsed schema: `file` describes it, and `imported` all that it leads to, by name."""

    def __init__(self, text: str, file: Any, imported: Mapping[str, Any]) -> None:
        self.canonical = text
        self.file = file
        self.imported = imported

    def normalized(self) -> str:
        """Printed from the descriptor; a schema that cannot be printed keeps its text."""
        try:
            return text_of(self.file)
        except InvalidSchemaError:
            return self.canonical

    def formatted(self, form: str) -> str:
        """`serialized` is the descriptor in base64."""
        if form != "serialized":
            return self.canonical
        return b64encode(self.file.SerializeToString(deterministic=True)).decode()


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Parse a schema whose references are the files that it imports. Raises InvalidSchemaError."""
    text = _as_text(text)
    others = {name: _as_text(other) for name, other in references.items()}
    try:
        files = compiled(text, others)
    except SchemaError as error:
        raise InvalidSchemaError(str(error)) from None
    return ProtobufSchema(text, files.pop(SCHEMA_FILE), files)


def _as_text(text: str) -> str:
    if not _BASE64.fullmatch(text):
        return text
    try:
        file = FileDescriptorProto.FromString(b64decode(text))
    except (binascii.Error, DecodeError, ValueError):
        return text
    return text_of(file)
