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

from ottla.pipeline.values.schemas import MAX_DEPTH, UnsupportedSchemaError, bounded

__all__ = ["named_types", "record_type"]

_PLAIN: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_MAX_DIGITS: Final = 38
_LOGICAL: Final[Mapping[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
    "uuid": StringType(),
}


def record_type(schema: Any, named: dict[str, DataType] | None = None) -> StructType:
    """The columns of a record schema. UnsupportedSchemaError for any other, and for unions of several types.

    `named` are the types of schemas that this one may refer to.
    """
    kind = named_types(schema, {} if named is None else named)
    if not isinstance(kind, StructType):
        raise UnsupportedSchemaError("The Avro schema is not a record: only records become rows.")
    return bounded(kind)


def named_types(schema: Any, named: dict[str, DataType]) -> DataType:
    """The type of any schema; those within it that have names are added to `named`."""
    try:
        return _type(schema, named, "", 0)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnsupportedSchemaError(f"The Avro schema is not valid: {type(error).__name__} of {error}.") from error


def _type(schema: Any, named: dict[str, DataType], namespace: str, depth: int) -> DataType:
    if depth > 2 * MAX_DEPTH:  # counted in the text, in which unions and arrays are levels, too
        raise UnsupportedSchemaError(f"The Avro schema is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(schema, list):
        return _union(schema, named, namespace, depth)
    if isinstance(schema, str):
        return _named(schema, named, namespace)
    prefix, _, name = str(schema.get("name", "")).rpartition(".")
    space = prefix or schema.get("namespace", namespace)
    kind = _logical(schema) or _complex(schema, named, space, depth)
    if name:
        named[f"{space}.{name}" if space else name] = kind
    return kind


def _named(name: str, named: Mapping[str, DataType], namespace: str) -> DataType:
    """A name without dots is one of the same namespace, or has none."""
    for candidate in (f"{namespace}.{name}", name):
        if candidate in named:
            return named[candidate]
    if name in _PLAIN:
        return _PLAIN[name]
    raise UnsupportedSchemaError(f"Avro type {name!r} is unknown, or refers to itself.")


def _union(branches: list[Any], named: dict[str, DataType], namespace: str, depth: int) -> DataType:
    kinds = [branch for branch in branches if branch != "null"]
    if len(kinds) != 1:
        raise UnsupportedSchemaError(f"A union of several Avro types cannot be one column: {str(branches)[:200]}.")
    return _type(kinds[0], named, namespace, depth + 1)


def _logical(schema: Mapping[str, Any]) -> DataType | None:
    name = schema.get("logicalType")
    if name == "decimal":
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if not 0 <= scale <= precision <= _MAX_DIGITS:
            raise UnsupportedSchemaError(
                f"A decimal of {precision} digits, {scale} of them after the decimal point, cannot be a column."
            )
        return DecimalType(precision, scale)
    return _LOGICAL.get(name) if isinstance(name, str) else None


def _complex(schema: Mapping[str, Any], named: dict[str, DataType], namespace: str, depth: int) -> DataType:
    match schema["type"]:
        case "record":
            kinds = [(part["name"], _type(part["type"], named, namespace, depth + 1)) for part in schema["fields"]]
            if not kinds:  # and an array of them would take no bytes, however long it is
                raise UnsupportedSchemaError("An Avro record without fields cannot be a column.")
            return StructType([StructField(name, kind, nullable=True) for name, kind in kinds])
        case "array":
            return ArrayType(_type(schema["items"], named, namespace, depth + 1), containsNull=True)
        case "map":
            return MapType(StringType(), _type(schema["values"], named, namespace, depth + 1), valueContainsNull=True)
        case "enum":
            return StringType()
        case "fixed" if schema["size"] > 0:
            return BinaryType()
        case "fixed":
            raise UnsupportedSchemaError("An Avro type of no bytes cannot be a column.")
        case other:
            return _type(other, named, namespace, depth + 1)
