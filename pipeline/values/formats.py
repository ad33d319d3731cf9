"""What a format of values with schemas has to know, and how its values begin.

Confluent's serializers put five bytes before a value: a zero and the id, four bytes big-endian, of the schema that it
was written with. What follows them is up to the format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from ottla.pipeline.values.schemas import SchemaText
from ottla.schemas.framing import HEADER_SIZE_BYTES, schema_id

__all__ = ["BARE", "HEADER_SIZE_BYTES", "Compiled", "Format", "Read", "Reader", "id_column", "id_of"]


BARE: Final = b""
"""The head of values that have none."""

Read = Callable[[bytes], dict[str, Any] | None]
"""Reads a value's bytes, or raises an exception that says why it cannot."""


class Reader(Protocol):
    """Reads bytes by a schema. It is sent to the executors, and opened there."""

    def open(self) -> Read:
        """Get ready to read."""


class Compiled(NamedTuple):
    """A schema, ready for use: the columns that it makes, and its reader."""

    columns: StructType
    reader: Reader


class Format(Protocol):
    """A format of values. It is sent to the executors."""

    name: str
    """Its name for people; in capitals, its name in registries."""

    def head(self) -> Column:
        """The part of a framed value that says how to read it: the id's four bytes, and more if the format has more."""

    def split(self, value: bytes) -> tuple[bytes, int]:
        """The same head, in Python, and where the rest begins. ValueError if the value does not begin so."""

    def compile(self, schema: SchemaText, head: bytes) -> Compiled:
        """Get a schema ready for use. UnsupportedSchemaError if it cannot make rows."""


def id_column() -> Column:
    """The four bytes of the id."""
    return F.substring("value", 2, 4)


def id_of(value: bytes) -> bytes:
    """The four bytes of the id. ValueError if the value does not begin so."""
    if schema_id(value) is None:
        raise ValueError("the value does not begin with a zero and a schema id")
    return value[1:HEADER_SIZE_BYTES]
