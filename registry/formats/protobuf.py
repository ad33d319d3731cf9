"""Protobuf: parsed by protoc itself, which grpcio-tools has as a library, so that no process is started.

A schema is kept as it was sent, with its comments. One that is sent as a serialized FileDescriptorProto in base64, as
Confluent's client for Python does, is kept as text.
"""

from __future__ import annotations

import ast
import binascii
import re
import tempfile
import threading
import warnings
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from grpc_tools import _protoc_compiler

from ottla.registry.formats import InvalidSchemaError
from ottla.registry.formats.json_text import check_depth
from ottla.registry.formats.protobuf_text import text_of

_FILE: Final = "schema.proto"
_WELL_KNOWN: Final = Path(next(iter(grpc_tools.__path__))) / "_proto"
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_SERIALIZED: Final = re.compile(rb"AddSerializedFile\((b'(?:[^'\\]|\\.)*')\)")
_MAX_ERRORS: Final = 5
# Warnings are kept in a place that all threads share.
_COMPILING: Final = threading.Lock()


class ProtobufSchema:
    """A parsed schema: `file` describes it, and `imported` all that it leads to, by name."""

    def __init__(self, text: str, file: Any, imported: Mapping[str, Any]) -> None:
        self.canonical = text
        self.file = file
        self.imported = imported

    def normalized(self) -> str:
        """Printed from the descriptor; text with what cannot be printed stays as it is."""
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
    for one in (text, *others.values()):
        check_depth(one)
    with tempfile.TemporaryDirectory(prefix="ottla-proto-") as folder:
        for name, one in others.items():
            _write(_inside(Path(folder), name), one)
        _write(Path(folder) / _FILE, text)
        files = _compiled(folder)
    return ProtobufSchema(text, files.pop(_FILE), files)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except UnicodeError:
        raise InvalidSchemaError("it has characters that UTF-8 cannot write") from None
    except OSError as error:
        raise InvalidSchemaError(f"the reference {path.name!r} cannot be a file: {error.strerror}") from None


def _as_text(text: str) -> str:
    if not _BASE64.fullmatch(text):
        return text
    try:
        file = FileDescriptorProto.FromString(b64decode(text))
    except (binascii.Error, DecodeError, ValueError):
        return text
    return text_of(file)


def _compiled(folder: str) -> dict[str, Any]:
    """The descriptors of the schema and of all that it imports, by file name."""
    try:
        with _COMPILING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            generated = _protoc_compiler.get_protos(_FILE.encode(), [folder.encode(), str(_WELL_KNOWN).encode()])
    except _protoc_compiler.ProtocErrors as errors:
        said = [f"{_text(it.message)} (line {it.line + 1})" for it in errors.errors()[:_MAX_ERRORS]]
        raise InvalidSchemaError("; ".join(said).replace(f"{folder}/", "")) from None
    files: dict[str, Any] = {}
    for _, source in generated:
        found = _SERIALIZED.search(source)
        if found is not None:
            file = FileDescriptorProto.FromString(ast.literal_eval(found.group(1).decode()))
            files[file.name] = file
    if _FILE not in files:
        raise InvalidSchemaError("protoc has made nothing of it")
    return files


def _text(message: object) -> str:
    """protoc's message, which its wrapper gives as the text of bytes."""
    text = str(message)
    return text[2:-1] if text[:2] in ("b'", 'b"') else text


def _inside(folder: Path, name: str) -> Path:
    """Where an import's file goes. InvalidSchemaError for a name that leads out of the folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\x00" in name or name == _FILE or len(name) > 255:
        raise InvalidSchemaError(f"the reference {name[:255]!r} is not a file name")
    return folder.joinpath(*parts)
