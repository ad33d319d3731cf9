"""The Arrow type of a Spark column: pyspark's own function takes different arguments in each of its versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
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

from ottla.pipeline.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["UnsupportedTypeError", "arrow_schema", "arrow_type"]


class UnsupportedTypeError(PipelineError):
    """A column has a type that tables of this format do not take."""


_PLAIN: Final[Mapping[type[DataType], Callable[[Any], pa.DataType]]] = {
    BooleanType: lambda pa: pa.bool_(),
    ByteType: lambda pa: pa.int8(),
    ShortType: lambda pa: pa.int16(),
    IntegerType: lambda pa: pa.int32(),
    LongType: lambda pa: pa.int64(),
    FloatType: lambda pa: pa.float32(),
    DoubleType: lambda pa: pa.float64(),
    StringType: lambda pa: pa.string(),
    BinaryType: lambda pa: pa.binary(),
    DateType: lambda pa: pa.date32(),
    TimestampType: lambda pa: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: lambda pa: pa.timestamp("us"),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns of a schema, each of them nullable. UnsupportedTypeError names a type that has no counterpart."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in schema.fields])


def arrow_type(kind: DataType) -> pa.DataType:
    """The type of one column; times with a zone are in UTC."""
    import pyarrow as pa

    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    if isinstance(kind, MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if (plain := _PLAIN.get(type(kind))) is None:
        raise UnsupportedTypeError(f"A column cannot be {kind.simpleString().upper()}: there is no Arrow type for it.")
    return plain(pa)
