"""A schema made ready for its values, the same for all three formats."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.schemas.errors import SchemaError

if TYPE_CHECKING:
    from ottla.client.schema_registry import SchemaText

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
KINDS: Final = (AVRO, JSON, PROTOBUF)
_MODULES: Final = {AVRO: "avro", JSON: "json_schema", PROTOBUF: "protobuf"}


class Codec(Protocol):
    """Reads and writes the values of one schema: what follows the five bytes of a framed value (`framing`).

    No value makes it run long for its size, or recurse deeply. Call it in a worker thread for values beyond some KB.
    """

    kind: str
    """AVRO, JSON or PROTOBUF."""

    def check(self, body: bytes) -> None:
        """Raises ValueMismatchError if a value does not fit the schema."""

    def tree(self, body: bytes) -> Any:
        """The value as what JSON can express, for people. Raises ValueMismatchError."""

    def to_json(self, body: bytes) -> str:
        """The value as one line of JSON, as Confluent's console consumers print it. Raises ValueMismatchError."""

    def from_json(self, text: str) -> bytes:
        """The value of a JSON text, as Confluent's console producers read it. Raises ValueMismatchError."""

    def record_name(self, body: bytes) -> str:
        """The full name of the value's type, by which subjects may be named; empty if it has none."""


def codec_of(schema: SchemaText, *, message: str | None = None) -> Codec:
    """Make a schema ready. `message` is the Protobuf message to write, if it is not the file's first one.

    May take long: call it in a worker thread. Raises SchemaError.
    """
    if schema.kind not in _MODULES:
        raise SchemaError(f"{schema.kind} is not a type of schemas")
    try:
        module: Any = import_module(f"ottla.schemas.{_MODULES[schema.kind]}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ottla"):
            raise
        raise SchemaError(
            f"{schema.kind} needs {error.name}, which is not installed: install Ottla with its extra `schemas`"
        ) from None
    made: Codec = module.codec(schema, message)
    return made
