"""Which column an Avro schema becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.pipeline.errors import PipelineError

__all__ = ["UnsupportedSchemaError", "record_type"]

_PLAIN: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LOGICAL: Final[Mapping[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
    "uuid": StringType(),
}


class UnsupportedSchemaError(PipelineError):
    """The Avro schema has no counterpart among columns."""


def record_type(schema: Any) -> StructType:
    """The columns of a record schema. UnsupportedSchemaError for any other, and for unions of several types."""
    kind = _type(schema, {})
    if not isinstance(kind, StructType):
        raise UnsupportedSchemaError("The Avro schema is not a record: only records become rows.")
    return kind


def _type(schema: Any, named: dict[str, DataType]) -> DataType:
    if isinstance(schema, list):
        return _union(schema, named)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema in named:
            return named[schema]
        raise UnsupportedSchemaError(f"Avro type {schema!r} is unknown, or refers to itself.")
    logical = _logical(schema)
    kind = logical or _complex(schema, named)
    if "name" in schema:
        for name in (schema["name"], f"{schema.get('namespace', '')}.{schema['name']}"):
            named[name] = kind
    return kind


def _union(branches: list[Any], named: dict[str, DataType]) -> DataType:
    kinds = [branch for branch in branches if branch != "null"]
    if len(kinds) != 1:
        raise UnsupportedSchemaError(f"A union of several Avro types cannot be one column: {branches!r}.")
    return _type(kinds[0], named)


def _logical(schema: Mapping[str, Any]) -> DataType | None:
    name = schema.get("logicalType")
    if name == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    return _LOGICAL.get(name) if isinstance(name, str) else None


def _complex(schema: Mapping[str, Any], named: dict[str, DataType]) -> DataType:
    match schema["type"]:
        case "record":
            fields = [StructField(part["name"], _type(part["type"], named), nullable=True) for part in schema["fields"]]
            return StructType(fields)
        case "array":
            return ArrayType(_type(schema["items"], named), containsNull=True)
        case "map":
            return MapType(StringType(), _type(schema["values"], named), valueContainsNull=True)
        case "enum":
            return StringType()
        case "fixed":
            return BinaryType()
        case other:
            return _type(other, named)
