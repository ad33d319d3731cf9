"""Compiles Protobuf by protoc itself, which grpcio-tools has as a library, so that no process is started."""

from __future__ import annotations

import ast
import re
import tempfile
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_tools import _protoc_compiler

from ottla.schemas.errors import SchemaError
from ottla.schemas.json_text import MAX_DEPTH, is_deep

SCHEMA_FILE: Final = "schema.proto"
"""The name under which the schema itself is compiled."""

_WELL_KNOWN: Final = Path(next(iter(grpc_tools.__path__))) / "_proto"
_SERIALIZED: Final = re.compile(rb"AddSerializedFile\((b'(?:[^'\\]|\\.)*')\)")
_MAX_ERRORS: Final = 5
# Warnings are kept in a place that all threads share.
_COMPILING: Final = threading.Lock()


def compiled(text: str, references: Mapping[str, str]) -> dict[str, Any]:
    """The descriptors of a schema (as SCHEMA_FILE) and of all that it imports, by name, each after what it imports.

    Raises SchemaError.
    """
    if any(is_deep(one) for one in (text, *references.values())):
        raise SchemaError(f"it has more than {MAX_DEPTH} objects and arrays inside each other")
    with tempfile.TemporaryDirectory(prefix="ottla-proto-") as folder:
        for name, other in references.items():
            _write(_inside(Path(folder), name), other)
        _write(Path(folder) / SCHEMA_FILE, text)
        return _in_order(_compiled(folder))


def _in_order(files: dict[str, Any]) -> dict[str, Any]:
    ordered: dict[str, Any] = {}

    def add(name: str) -> None:
        if name in files and name not in ordered:
            for imported in files[name].dependency:
                add(imported)
            ordered[name] = files[name]

    for name in files:
        add(name)
    return ordered


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except UnicodeError:
        raise SchemaError("it has characters that UTF-8 cannot write") from None
    except OSError as error:
        raise SchemaError(f"the reference {path.name!r} cannot be a file: {error.strerror}") from None


def _compiled(folder: str) -> dict[str, Any]:
    """The descriptors of the schema and of all that it imports, by file name."""
    try:
        with _COMPILING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            generated = _protoc_compiler.get_protos(SCHEMA_FILE.encode(), [folder.encode(), str(_WELL_KNOWN).encode()])
    except _protoc_compiler.ProtocErrors as errors:
        said = [f"{_text(it.message)} (line {it.line + 1})" for it in errors.errors()[:_MAX_ERRORS]]
        raise SchemaError("; ".join(said).replace(f"{folder}/", "")) from None
    files: dict[str, Any] = {}
    for _, source in generated:
        found = _SERIALIZED.search(source)
        if found is not None:
            file = FileDescriptorProto.FromString(ast.literal_eval(found.group(1).decode()))
            files[file.name] = file
    if SCHEMA_FILE not in files:
        raise SchemaError("protoc has made nothing of it")
    return files


def _text(message: object) -> str:
    """protoc's message, which its wrapper gives as the text of bytes."""
    text = str(message)
    return text[2:-1] if text[:2] in ("b'", 'b"') else text


def _inside(folder: Path, name: str) -> Path:
    """The path of an import's file. SchemaError for a name that leads out of the folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\x00" in name or name == SCHEMA_FILE or len(name) > 255:
        raise SchemaError(f"the reference {name[:255]!r} is not a file name")
    return folder.joinpath(*parts)
