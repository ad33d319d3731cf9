"""Schemas as texts, where they are looked up, and their limits.

Schemas come from outside, as records do. How deep one goes and how many columns it makes has a limit; beyond it, its
records become dead letters, and nothing worse happens.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ottla.client.schema_registry import SchemaText
from ottla.pipeline.errors import PipelineError
from ottla.schemas.errors import SchemaError
from ottla.schemas.json_text import schema_json

__all__ = ["MAX_COLUMNS", "MAX_DEPTH", "SchemaText", "Schemas", "UnsupportedSchemaError", "bounded", "parsed_json"]

MAX_DEPTH: Final = 64
MAX_COLUMNS: Final = 10_000


class UnsupportedSchemaError(PipelineError):
    """The schema has no counterpart among columns."""


class Schemas(Protocol):
    """Where schemas are looked up."""

    def schema(self, schema_id: int) -> SchemaText | None:
        """The schema of this id; None if there is none."""

    def latest(self, subject: str) -> SchemaText:
        """The newest schema of a subject. PipelineError if there is none."""


def parsed_json(text: str, what: str) -> Any:
    """A schema's text that is JSON. UnsupportedSchemaError says why it is not."""
    try:
        return schema_json(text)
    except SchemaError as error:
        raise UnsupportedSchemaError(f"The {what} schema: {error}.") from None


def bounded(kind: StructType) -> StructType:
    """The same columns. UnsupportedSchemaError if they go too deep, or are too many.

    Types that are used several times are counted once for each use: a short schema can name more columns than fit in
    memory.
    """
    columns, depth = _size(kind, {})
    if depth > MAX_DEPTH:
        raise UnsupportedSchemaError(f"The schema is nested deeper than {MAX_DEPTH} levels.")
    if columns > MAX_COLUMNS:
        raise UnsupportedSchemaError(f"The schema has more than {MAX_COLUMNS:,} columns, nested ones included.")
    return kind


def _size(kind: DataType, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How many columns a type has, and how many levels."""
    if id(kind) not in known:
        parts = [_size(part, known) for part in _parts(kind)]
        columns = sum(part[0] for part in parts) + (len(parts) if isinstance(kind, StructType) else 0)
        known[id(kind)] = columns, 1 + max((part[1] for part in parts), default=0)
    return known[id(kind)]


def _parts(kind: DataType) -> list[DataType]:
    if isinstance(kind, StructType):
        return [field.dataType for field in kind.fields]
    if isinstance(kind, ArrayType):
        return [kind.elementType]
    if isinstance(kind, MapType):
        return [kind.keyType, kind.valueType]
    return []
