"""Values in Protobuf: the driver compiles a schema's text, and the executors read by its descriptors."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ottla.pipeline.errors import OptionError
from ottla.pipeline.values.formats import HEADER_SIZE_BYTES, Compiled, Read, id_of
from ottla.pipeline.values.protobuf_types import Shape, message_type, shape_of
from ottla.pipeline.values.schemas import SchemaText, UnsupportedSchemaError
from ottla.schemas.errors import SchemaError, ValueMismatchError
from ottla.schemas.framing import split_indexes

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

__all__ = ["ProtobufFormat"]

_MAX_INDEXES: Final = 8


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
        from ottla.schemas.protobuf import pool_of
        from ottla.schemas.protobuf_files import SCHEMA_FILE

        message = _message(pool_of(files).FindFileByName(SCHEMA_FILE), head[4:])
        return Compiled(message_type(message), _ProtobufReader(files, message.full_name))


class _ProtobufReader:
    """Holds the compiled files, each as bytes and after those that it imports."""

    def __init__(self, files: list[bytes], message: str) -> None:
        self._files = files
        self._message = message

    def open(self) -> Read:
        from google.protobuf.message_factory import GetMessageClass

        from ottla.schemas.protobuf import pool_of

        descriptor = pool_of(self._files).FindMessageTypeByName(self._message)
        message_class = GetMessageClass(descriptor)
        shape: Shape = shape_of(descriptor)
        parse: Callable[[bytes], Any] = message_class.FromString
        return lambda value: shape(parse(value))


def _compiled(schema: SchemaText) -> list[bytes]:
    """The descriptors of a schema and of all that it imports, each after what it imports."""
    if find_spec("grpc_tools") is None:
        raise OptionError("Protobuf schemas are compiled by grpcio-tools: install Ottla with its extra `schemas`.")
    from ottla.schemas.protobuf_files import compiled

    try:
        return [file.SerializeToString() for file in compiled(schema.text, schema.references).values()]
    except SchemaError as error:
        raise UnsupportedSchemaError(f"The Protobuf schema does not compile: {str(error)[:300]}") from None


def _message(file: Any, head: bytes) -> Descriptor:
    """The message that a head names. UnsupportedSchemaError if there is none."""
    from ottla.schemas.protobuf import message_at

    try:
        found: Descriptor = message_at(file, split_indexes(head)[0] if head else (0,))
    except ValueMismatchError as error:
        raise UnsupportedSchemaError(f"The Protobuf schema: {error}.") from None
    return found
