"""What becomes of a table's schema when the configuration gives a different one than before.

Readers of the table must be able to follow: new columns may come, and columns may become wider if the table's format
keeps track of that. Everything else is refused, before anything is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.values.evolution import is_fit, nullable

__all__ = ["SchemaChangeError", "Widens", "check_columns", "succeed"]

Widens = Callable[[DataType, DataType], bool]
"""Whether a table lets a column of the one type become one of the other, which is wider."""

_WHOLE_NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType)


class SchemaChangeError(PipelineError):
    """The schema that is given cannot be the table's, or cannot follow the one that the table has."""


def check_columns(given: StructType, reserved: frozenset[str] = frozenset()) -> None:
    """SchemaChangeError if a given schema names what cannot be a column; `reserved` names are in lower case."""
    for kind, path in _structs(given, ""):
        for name, times in Counter(field.name.lower() for field in kind.fields).items():
            if times > 1:
                raise SchemaChangeError(f"Column {path + name!r} of the schema appears {times} times, apart from case.")
        for field in kind.fields:
            if not is_fit(field.name):
                raise SchemaChangeError(
                    f"Column {path + field.name!r} of the schema cannot be one: tables take no empty names, and none "
                    "with spaces or any of ,;{}()= in them."
                )
    if taken := [field.name for field in given.fields if field.name.lower() in reserved]:
        raise SchemaChangeError(
            f"Column {taken[0]!r} of the schema has the name of a column that the job writes itself, for the record's "
            "key or metadata: leave it out, or give key another name, or write metadata = false."
        )


def succeed(kept: StructType, given: StructType, *, evolves: bool, widens: Widens) -> StructType:
    """The schema that follows the kept one when this one is given. SchemaChangeError if readers could not follow.

    With `evolves` columns that are not given stay, for they may have come with the records. `widens` says whether the
    table keeps track of a column that becomes wider, and is asked only if there is one.
    """
    return _Succession(evolves=evolves, widens=widens).struct(kept, given, "")


class _Succession:
    def __init__(self, *, evolves: bool, widens: Widens) -> None:
        self._evolves = evolves
        self._widens = widens

    def struct(self, kept: StructType, given: StructType, path: str) -> StructType:
        wanted = {field.name: field.dataType for field in given.fields}
        spelled = {name.lower(): name for name in wanted}
        merged: dict[str, DataType] = {}
        for field in kept.fields:
            name = f"{path}{field.name}"
            if field.name in wanted:
                merged[field.name] = self._type(field.dataType, wanted[field.name], name)
            elif (other := spelled.get(field.name.lower())) is not None:
                raise SchemaChangeError(f"Column {name!r} of the table is {other!r} in the schema: keep its spelling.")
            elif self._evolves:
                merged[field.name] = nullable(field.dataType)
            else:
                raise SchemaChangeError(
                    f"Column {name!r} of the table is missing in the schema: keep it as {_ddl(field.dataType)}, it may "
                    "stay empty."
                )
        merged |= {name: nullable(kind) for name, kind in wanted.items() if name not in merged}
        return StructType([StructField(name, kind, nullable=True) for name, kind in merged.items()])

    def _type(self, kept: DataType, given: DataType, path: str) -> DataType:
        if isinstance(kept, StructType) and isinstance(given, StructType):
            return self.struct(kept, given, f"{path}.")
        if isinstance(kept, ArrayType) and isinstance(given, ArrayType):
            return ArrayType(self._type(kept.elementType, given.elementType, f"{path}[]"), containsNull=True)
        if isinstance(kept, MapType) and isinstance(given, MapType) and kept.keyType == given.keyType:
            return MapType(kept.keyType, self._type(kept.valueType, given.valueType, f"{path}.*"), True)
        if nullable(kept) == nullable(given):
            return nullable(given)
        if _is_wider(kept, given) and self._widens(kept, given):
            return given
        widening = (
            " A Delta table can also widen the column, once somebody has set its property "
            "delta.enableTypeWidening to true; an Iceberg table can, but for digits after the point."
            if _is_wider(kept, given)
            else ""
        )
        raise SchemaChangeError(
            f"Column {path!r} of the table is {_ddl(kept)}, but {_ddl(given)} in the schema: rows that were written "
            f"before could no longer be read together with new ones. Write {_ddl(kept)} again, or name another path "
            f"and another checkpoint, into which the topic is read again.{widening}"
        )


def _is_wider(kept: DataType, given: DataType) -> bool:
    """Whether each value of the one type is one of the other, in a way that Delta or Iceberg widens columns."""
    if isinstance(kept, _WHOLE_NUMBERS) and isinstance(given, _WHOLE_NUMBERS):
        return _WHOLE_NUMBERS.index(type(kept)) < _WHOLE_NUMBERS.index(type(given))
    if isinstance(kept, DecimalType) and isinstance(given, DecimalType):
        grown = given.scale - kept.scale
        return grown >= 0 and given.precision - kept.precision >= grown and kept != given
    return isinstance(kept, FloatType) and isinstance(given, DoubleType)


def _structs(kind: DataType, path: str) -> list[tuple[StructType, str]]:
    """Every structure within a type, itself included, with the path of its fields."""
    if isinstance(kind, StructType):
        inner = [found for part in kind.fields for found in _structs(part.dataType, f"{path}{part.name}.")]
        return [(kind, path), *inner]
    if isinstance(kind, ArrayType):
        return _structs(kind.elementType, path)
    if isinstance(kind, MapType):
        return _structs(kind.keyType, path) + _structs(kind.valueType, path)
    return []


def _ddl(kind: DataType) -> str:
    return kind.simpleString().upper()
