"""What a format of values with schemas has to know, and how its values begin.

Confluent's serializers put five bytes before a value: a zero and the id, four bytes big-endian, of the schema that it
was written by. What follows them is the format's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from ottla.pipeline.values.schemas import SchemaText

__all__ = ["BARE", "HEADER_SIZE_BYTES", "Compiled", "Format", "Read", "Reader", "id_column", "id_of"]

HEADER_SIZE_BYTES: Final = 5
MAGIC: Final = 0
BARE: Final = b""
"""The head of values that have none."""

Read = Callable[[bytes], dict[str, Any] | None]
"""Reads a value's bytes; whatever it raises says why it cannot."""


class Reader(Protocol):
    """What a schema makes of bytes. It travels to the executors, and is opened there."""

    def open(self) -> Read:
        """Get ready to read."""


class Compiled(NamedTuple):
    """A schema, ready for use: the columns that it makes, and its reader."""

    columns: StructType
    reader: Reader


class Format(Protocol):
    """A format of values. It travels to the executors."""

    name: str
    """What people call it; in capitals, what registries do."""

    def head(self) -> Column:
        """What of a framed value says how it is read: the id's four bytes, and more where the format has more."""

    def split(self, value: bytes) -> tuple[bytes, int]:
        """The same head, in Python, and where the rest begins. ValueError if the value does not begin so."""

    def compile(self, schema: SchemaText, head: bytes) -> Compiled:
        """UnsupportedSchemaError if rows cannot be made by this schema."""


def id_column() -> Column:
    """The four bytes of the id."""
    return F.substring("value", 2, 4)


def id_of(value: bytes) -> bytes:
    """The four bytes of the id. ValueError if the value does not begin so."""
    if len(value) < HEADER_SIZE_BYTES or value[0] != MAGIC:
        raise ValueError("the value does not begin with a zero and a schema id")
    return value[1:HEADER_SIZE_BYTES]
