"""Decimals of JSON that keep all their digits.

Spark rounds a number to the digits that its column has: 1.235 in a DECIMAL(10,2) becomes 1.24. To see it, numbers are
read with all the digits that a decimal can have behind the point, and compared with what the column makes of them.
"""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

__all__ = ["holds", "is_rounded", "narrowed", "widened"]

_MOST_DIGITS: Final = 38


def widened(schema: StructType) -> StructType:
    """The schema by which values are read: decimals have as many digits before the point, and all others behind it.

    Fields with maps stay as they are, because Spark does not compare maps.
    """
    return StructType(
        [
            field if _has_map(field.dataType) else StructField(field.name, _wide(field.dataType), field.nullable)
            for field in schema.fields
        ]
    )


def narrowed(parsed: Column, schema: StructType, wide: StructType) -> list[Column]:
    """The fields of what was read, in the types of their columns."""
    return [
        (parsed[field.name] if field == read else parsed[field.name].try_cast(field.dataType)).alias(field.name)
        for field, read in zip(schema.fields, wide.fields, strict=True)
    ]


def is_rounded(parsed: Column, schema: StructType, wide: StructType) -> Column:
    """Whether a field has digits that its column has not."""
    lost = [
        ~parsed[field.name].try_cast(field.dataType).try_cast(read.dataType).eqNullSafe(parsed[field.name])
        for field, read in zip(schema.fields, wide.fields, strict=True)
        if field != read
    ]
    return reduce(lambda one, other: one | other, lost, F.lit(False))


def holds(kind: DecimalType, number: float) -> bool:
    """Whether a decimal of that type is the number as it was written."""
    _, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)  # JSON has no infinity
    return -exponent <= kind.scale and len(digits) + exponent <= kind.precision - kind.scale


def _wide(kind: DataType) -> DataType:
    if isinstance(kind, DecimalType):
        return DecimalType(_MOST_DIGITS, _MOST_DIGITS - (kind.precision - kind.scale))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _wide(field.dataType), field.nullable) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_wide(kind.elementType), kind.containsNull)
    return kind


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))
