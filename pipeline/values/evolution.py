"""The one rule by which a table's schema evolves.

A field that was not there before becomes a new nullable column, at its end, also within structs. A field that is there
keeps its type: a value of another type is a dead letter. Nothing is ever dropped, renamed or made narrower.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

__all__ = ["Evolution", "evolve", "is_fit", "nullable"]

# What neither Delta nor Parquet takes as a column's name, and what jobs call their own columns.
_UNFIT: Final = re.compile(r"[ ,;{}()\n\t=]|^$")


class Evolution(NamedTuple):
    """A schema that has taken in another, and the names of fields, at the top and within, that cannot be columns."""

    schema: StructType
    refused: tuple[str, ...]
    refused_within: tuple[str, ...]


def is_fit(name: str) -> bool:
    """Whether tables take a column of this name."""
    return _UNFIT.search(name) is None


def evolve(held: StructType, seen: StructType, reserved: frozenset[str] = frozenset()) -> Evolution:
    """The schema that is held, with the new fields of the one that was seen.

    Column names that differ only by case are the same name: a field whose name differs from a column's by case alone is
    refused, and so is one with a `reserved` name or with letters that no column may have.
    """
    refused: set[str] = set()
    refused_within: set[str] = set()
    fit = StructType([field for field in seen.fields if field.name.lower() not in reserved])
    refused.update(field.name for field in seen.fields if field.name.lower() in reserved)
    schema = _merged(held, fit, refused, refused_within)
    return Evolution(schema, tuple(sorted(refused)), tuple(sorted(refused_within)))


def _merged(held: StructType, seen: StructType, refused: set[str], within: set[str]) -> StructType:
    """Both together; `refused` takes the names that are unfit here, `within` those further down."""
    merged = {field.name: nullable(field.dataType) for field in held.fields}
    known = {name.lower(): name for name in merged}
    for name in sorted((field.name for field in seen.fields), reverse=True):  # of Id and id, both new, id wins
        known.setdefault(name.lower(), name)
    for field in seen.fields:
        if not is_fit(field.name) or known[field.name.lower()] != field.name:
            refused.add(field.name)
        else:
            merged[field.name] = _merged_type(merged.get(field.name), field.dataType, within)
    return StructType([StructField(name, kind, nullable=True) for name, kind in merged.items()])


def _merged_type(held: DataType | None, seen: DataType, refused: set[str]) -> DataType:
    if isinstance(seen, StructType) and isinstance(held, StructType | None):
        return _merged(held or StructType(), seen, refused, refused)
    if isinstance(seen, ArrayType) and isinstance(held, ArrayType | None):
        element = _merged_type(None if held is None else held.elementType, seen.elementType, refused)
        return ArrayType(element, containsNull=True)
    return nullable(seen) if held is None else held


def nullable(kind: DataType) -> DataType:
    """The type with everything in it nullable: tomorrow's records may lack any field."""
    if isinstance(kind, StructType):
        return StructType([StructField(part.name, nullable(part.dataType), nullable=True) for part in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType), valueContainsNull=True)
    return kind
