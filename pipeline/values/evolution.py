"""The one rule by which a table's schema evolves.

A field that was not there before becomes a new nullable column, at its end, also within structs. A field that is there
keeps its type: a value of another type is a dead letter. Nothing is ever dropped, renamed or made narrower.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

__all__ = ["Evolution", "evolve", "nullable"]

# What neither Delta nor Parquet takes as a column's name, and what jobs call their own columns.
_UNFIT: Final = re.compile(r"[ ,;{}()\n\t=]|^$")


class Evolution(NamedTuple):
    """A schema that has taken in another. `refused` are names of top-level fields that cannot become columns."""

    schema: StructType
    refused: tuple[str, ...]


def evolve(held: StructType, seen: StructType, reserved: frozenset[str] = frozenset()) -> Evolution:
    """The schema that is held, with the new fields of the one that was seen.

    Column names are one whatever their case: a field whose name differs from a column's by case alone is refused, and
    so is one with a `reserved` name or with letters that no column may have.
    """
    known = {field.name.lower(): field.name for field in held.fields}
    refused = [
        field.name
        for field in seen.fields
        if known.get(field.name.lower(), field.name) != field.name
        or field.name.lower() in reserved
        or _UNFIT.search(field.name)
    ]
    first: dict[str, str] = {}
    for field in seen.fields:
        if first.setdefault(field.name.lower(), field.name) != field.name and field.name not in refused:
            refused.append(field.name)
    fit = StructType([field for field in seen.fields if field.name not in refused])
    return Evolution(_merged(held, fit), tuple(sorted(refused)))


def _merged(held: StructType, seen: StructType) -> StructType:
    additions = {field.name: field for field in seen.fields}
    kept = []
    for field in held.fields:
        other = additions.pop(field.name, None)
        kind = field.dataType if other is None else _merged_type(field.dataType, other.dataType)
        kept.append(StructField(field.name, kind, nullable=True))
    new = [StructField(field.name, nullable(field.dataType), nullable=True) for field in additions.values()]
    return StructType(kept + new)


def _merged_type(held: DataType, seen: DataType) -> DataType:
    if isinstance(held, StructType) and isinstance(seen, StructType):
        return _merged(held, seen)
    if isinstance(held, ArrayType) and isinstance(seen, ArrayType):
        return ArrayType(_merged_type(held.elementType, seen.elementType), containsNull=True)
    return held


def nullable(kind: DataType) -> DataType:
    """The type with everything in it nullable: tomorrow's records may lack any field."""
    if isinstance(kind, StructType):
        return StructType([StructField(part.name, nullable(part.dataType), nullable=True) for part in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType), valueContainsNull=True)
    return kind
