"""Values made ready for a table's columns, and those found that would only fit changed.

Arrow makes 1 of 1.5 in a column of whole numbers, a day of a time, and infinity of what a FLOAT cannot hold. A table's
column keeps its type when a schema gives the field another one, so values are looked at where the two differ.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from math import isnan
from typing import Any, Final
from uuid import UUID

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

__all__ = ["Fit", "UnfitError", "fit_to"]

Fit = Callable[[Any], Any]


class UnfitError(ValueError):
    """A value would be another one in its column."""


def fit_to(column: DataType, written: DataType) -> Fit | None:
    """What turns a value of one type into what Arrow takes for a column of another; None if nothing has to be done.

    It raises UnfitError for a value that the column cannot hold as it is.
    """
    if isinstance(column, StructType) and isinstance(written, StructType):
        return _fit_struct(column, written)
    if isinstance(column, ArrayType) and isinstance(written, ArrayType):
        inner = fit_to(column.elementType, written.elementType)
        return None if inner is None else lambda value: value and [_unless_null(inner, part) for part in value]
    if isinstance(column, MapType) and isinstance(written, MapType):
        values = fit_to(column.valueType, written.valueType) or _same
        return lambda value: value and [(key, _unless_null(values, part)) for key, part in value.items()]
    if isinstance(column, StringType):
        return _text
    if column == written:
        return None
    holds = _HOLDS.get(type(column))
    return None if holds is None else _checked(holds, column.simpleString().upper())


def _fit_struct(column: StructType, written: StructType) -> Fit | None:
    types = {field.name: field.dataType for field in written.fields}
    fits = [
        (field.name, fit)
        for field in column.fields
        if field.name in types and (fit := fit_to(field.dataType, types[field.name])) is not None
    ]
    if not fits:
        return None

    def fitted(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found = dict(value)
        for name, fit in fits:
            if (part := value.get(name)) is not None:
                try:
                    found[name] = fit(part)
                except UnfitError as error:
                    raise UnfitError(f"field {name!r}: {error}") from None
        return found

    return fitted


def _checked(holds: Callable[[Any], bool], kind: str) -> Fit:
    def check(value: Any) -> Any:
        if not holds(value):
            raise UnfitError(f"{str(value)[:100]} is no {kind}")
        return value

    return check


def _unless_null(fit: Fit, value: Any) -> Any:
    return None if value is None else fit(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value % 1 == 0


def _is_single(value: Any) -> bool:
    if not _is_number(value):
        return False
    try:
        (held,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return False
    return bool(held == value) or isnan(value)


def _is_day(value: Any) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime)


_HOLDS: Final[dict[type[DataType], Callable[[Any], bool]]] = {
    ByteType: _is_whole,
    ShortType: _is_whole,
    IntegerType: _is_whole,
    LongType: _is_whole,
    FloatType: _is_single,
    DoubleType: _is_number,
    DecimalType: _is_number,
    DateType: _is_day,
    TimestampType: _is_time,
    TimestampNTZType: _is_time,
}


def _text(value: Any) -> Any:
    """Avro's UUIDs are strings in a table."""
    return str(value) if isinstance(value, UUID) else value


def _same(value: Any) -> Any:
    return value
