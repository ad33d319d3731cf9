"""Which column a property of a JSON Schema becomes.

An object with properties becomes a structure, one with `additionalProperties` alone a map, a list an array. `null`
besides one other type only says that a value may be missing, and so do `oneOf` and `anyOf` of a null and something
else. Whatever may be of several types, or of any, becomes a string: its JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ottla.pipeline.values.schemas import MAX_COLUMNS, MAX_DEPTH, UnsupportedSchemaError, bounded

__all__ = ["Documents", "Shape", "object_type", "shape_of"]

Shape = Callable[[Any], Any]
"""Turns a JSON value into one that a column takes."""

_PLAIN: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
}
_MANY: Final = ("oneOf", "anyOf")


class Documents(NamedTuple):
    """A schema, and those that it may refer to."""

    document: Any
    others: Mapping[str, Any]


class _Place(NamedTuple):
    """A schema, and the document that it is in, into which references without a name lead."""

    schema: Any
    document: Any


def object_type(documents: Documents) -> StructType:
    """The columns of a schema. UnsupportedSchemaError if it is not one of objects, or refers to itself."""
    kind = _Types(documents).kind(_Place(documents.document, documents.document), 0)
    if not isinstance(kind, StructType):
        raise UnsupportedSchemaError(
            "The JSON Schema does not describe an object with properties: only those become rows."
        )
    return bounded(kind)


class _Types:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._left = MAX_COLUMNS

    def kind(self, place: _Place, depth: int) -> DataType:
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise UnsupportedSchemaError(
                f"The JSON Schema refers to itself, is nested deeper than {MAX_DEPTH} levels, or has more than "
                f"{MAX_COLUMNS:,} columns."
            )
        schema, document = self._followed(place)
        if not isinstance(schema, dict):
            return StringType()
        for many in _MANY:
            if many in schema:
                return self._union(schema[many], document, depth)
        named = schema.get("type", "object" if "properties" in schema else None)
        kinds = [name for name in (named if isinstance(named, list) else [named]) if name != "null"]
        name = kinds[0] if len(kinds) == 1 else None
        if name == "object":
            return self._object(schema, document, depth)
        if name == "array" and isinstance(items := schema.get("items"), dict):
            return ArrayType(self.kind(_Place(items, document), depth + 1))
        return _PLAIN.get(name, StringType()) if isinstance(name, str) else StringType()

    def _object(self, schema: dict[str, Any], document: Any, depth: int) -> DataType:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            parts = [(name, self.kind(_Place(part, document), depth + 1)) for name, part in properties.items()]
            return StructType([StructField(name, kind) for name, kind in parts])
        if isinstance(more := schema.get("additionalProperties"), dict):
            return MapType(StringType(), self.kind(_Place(more, document), depth + 1))
        return StringType()

    def _union(self, branches: Any, document: Any, depth: int) -> DataType:
        if not isinstance(branches, list):
            return StringType()
        others = [branch for branch in branches if branch != {"type": "null"}]
        return self.kind(_Place(others[0], document), depth + 1) if len(others) == 1 else StringType()

    def _followed(self, place: _Place) -> _Place:
        """Where a chain of `$ref` ends."""
        for _ in range(MAX_DEPTH):
            schema, document = place
            if not isinstance(schema, dict) or not isinstance(reference := schema.get("$ref"), str):
                return place
            name, _, pointer = reference.partition("#")
            root = self._documents.others.get(name) if name else document
            if root is None:
                raise UnsupportedSchemaError(f"The JSON Schema refers to {name!r}, which is not among its references.")
            place = _Place(_pointed(root, pointer, reference), root)
        raise UnsupportedSchemaError("The JSON Schema's references lead nowhere.")


def _pointed(root: Any, pointer: str, reference: str) -> Any:
    """What a JSON pointer leads to."""
    found = root
    for part in pointer.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, TypeError, ValueError):
            raise UnsupportedSchemaError(f"The JSON Schema refers to {reference!r}, which is not there.") from None
    return found


def shape_of(kind: DataType) -> Shape:
    """What turns a value that its schema allows into one for the column that the schema became."""
    if isinstance(kind, StructType):
        return _struct_shape(kind)
    if isinstance(kind, ArrayType):
        inner = shape_of(kind.elementType)
        return lambda value: [inner(part) for part in value] if isinstance(value, list) else _unfit(value, kind)
    if isinstance(kind, MapType):
        values = shape_of(kind.valueType)
        return lambda value: (
            {key: values(part) for key, part in value.items()} if isinstance(value, dict) else _unfit(value, kind)
        )
    return _SINGLE[type(kind)]


def _struct_shape(kind: StructType) -> Shape:
    parts = [(field.name, shape_of(field.dataType)) for field in kind.fields]

    def shaped(value: Any) -> Any:
        if not isinstance(value, dict):
            return _unfit(value, kind)
        return {name: shape(value[name]) for name, shape in parts if name in value}

    return shaped


def _unfit(value: Any, kind: DataType) -> None:
    """A null fits any column; nothing else of another type does."""
    if value is not None:
        raise ValueError(f"{json.dumps(value)[:100]} is not {kind.simpleString()[:100]}")


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _whole(value: Any) -> Any:
    """For JSON Schema 5.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _same(value: Any) -> Any:
    return value


_SINGLE: Final[Mapping[type[DataType], Shape]] = {
    StringType: _text,
    LongType: _whole,
    DoubleType: _number,
    BooleanType: _same,
}
