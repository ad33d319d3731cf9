"""Values in Protobuf: the driver has `protoc` compile a schema's text, and the executors read by its descriptors.

After the five bytes a value says which message of the schema it is: how many numbers follow, and the numbers, each a
message's place in the file or in the message before. A single zero is short for the file's first message.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ottla.pipeline.errors import OptionError
from ottla.pipeline.values.formats import HEADER_SIZE_BYTES, Compiled, Read, id_of
from ottla.pipeline.values.protobuf_types import Shape, message_type, shape_of
from ottla.pipeline.values.schemas import SchemaText, UnsupportedSchemaError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

__all__ = ["ProtobufFormat"]

_MAX_INDEXES: Final = 8
_COMPILE_TIMEOUT_S: Final = 20.0
_FILE: Final = "ottla_schema.proto"
_LOGGED: Final = re.compile(r"[IWEF]\d{4} ")


class ProtobufFormat:
    """Implements Format. References are the files that a schema imports."""

    name = "Protobuf"

    def head(self) -> Column:
        return F.expr(
            # A value may end before it says how many numbers follow.
            "substring(value, 2, 4 + 1 + coalesce(least(cast(conv(hex(substring(value, 6, 1)), 16, 10) AS INT) div 2, "
            f"{_MAX_INDEXES}), 0))"
        )

    def split(self, value: bytes) -> tuple[bytes, int]:
        id_of(value)
        if len(value) == HEADER_SIZE_BYTES:
            raise ValueError("the value does not say which message it is")
        # Zigzag: the count and the indexes are below 64, and so are one byte each, and even.
        end = HEADER_SIZE_BYTES + 1 + min(value[HEADER_SIZE_BYTES] // 2, _MAX_INDEXES)
        return value[1:end], end

    def compile(self, schema: SchemaText, head: bytes) -> Compiled:
        files = _compiled(schema)
        message = _message(_pool(files).FindFileByName(_FILE), _indexes(head[4:]))
        return Compiled(message_type(message), _ProtobufReader(files, message.full_name))


class _ProtobufReader:
    """Holds the compiled files, each as bytes and after those that it imports."""

    def __init__(self, files: list[bytes], message: str) -> None:
        self._files = files
        self._message = message

    def open(self) -> Read:
        from google.protobuf.message_factory import GetMessageClass

        descriptor = _pool(self._files).FindMessageTypeByName(self._message)
        message_class = GetMessageClass(descriptor)
        shape: Shape = shape_of(descriptor)
        parse: Callable[[bytes], Any] = message_class.FromString
        return lambda value: shape(parse(value))


def _indexes(head: bytes) -> list[int]:
    """The places in a head. UnsupportedSchemaError if they are not written as they should be."""
    if not head or head == b"\x00":
        return [0]
    if len(head) != 1 + head[0] // 2 or any(byte % 2 or byte >= 128 for byte in head):
        raise UnsupportedSchemaError("The value does not say which message it is in a way that is understood.")
    return [byte // 2 for byte in head[1:]]


def _message(file: Any, indexes: list[int]) -> Descriptor:
    """The message at these places. UnsupportedSchemaError if there is none."""
    messages = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if index >= len(messages):
            raise UnsupportedSchemaError(f"The Protobuf schema has no message {indexes}.")
        found = messages[index]
        messages = list(found.nested_types)
    assert found is not None
    return found


def _pool(files: list[bytes]) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return pool


def _compiled(schema: SchemaText) -> list[bytes]:
    """The descriptors of a schema and of all that it imports, by protoc in a process of its own."""
    if find_spec("grpc_tools") is None:
        raise OptionError("Protobuf schemas are compiled by grpcio-tools: install Ottla with its extra `schemas`.")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    with tempfile.TemporaryDirectory(prefix="ottla-proto-") as folder:
        for name, text in {**schema.references, _FILE: schema.text}.items():
            path = _inside(Path(folder), name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        out = Path(folder) / "compiled"
        words = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{_well_known()}", "--include_imports"]
        try:
            done = subprocess.run(
                [*words, f"--descriptor_set_out={out}", _FILE],
                capture_output=True,
                text=True,
                timeout=_COMPILE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnsupportedSchemaError("The Protobuf schema takes too long to compile.") from None
        if done.returncode:
            said = [
                line.replace(f"{folder}/", "")
                for line in done.stderr.splitlines()
                if ".proto:" in line and not _LOGGED.match(line)
            ]
            raise UnsupportedSchemaError(f"The Protobuf schema does not compile: {'; '.join(said)[:300]}")
        files = FileDescriptorSet.FromString(out.read_bytes()).file
        return [file.SerializeToString() for file in files]


def _inside(folder: Path, name: str) -> Path:
    """Where an import's file goes. UnsupportedSchemaError for a name that leads out of the folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\x00" in name or name == "compiled":
        raise UnsupportedSchemaError(f"The Protobuf schema imports {name!r}, which is not a file name.")
    return folder.joinpath(*parts)


def _well_known() -> Path:
    """Where Google's own files lie, such as google/protobuf/timestamp.proto."""
    spec = find_spec("grpc_tools")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))) / "_proto"
