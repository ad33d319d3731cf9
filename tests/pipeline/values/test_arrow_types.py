"""Spark's types as Arrow's."""

from __future__ import annotations

import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.pipeline.values.arrow_types import UnsupportedTypeError, arrow_schema

PLAIN = (
    types.BooleanType(),
    types.ByteType(),
    types.ShortType(),
    types.IntegerType(),
    types.LongType(),
    types.FloatType(),
    types.DoubleType(),
    types.StringType(),
    types.BinaryType(),
    types.DateType(),
    types.TimestampType(),
    types.TimestampNTZType(),
    types.DecimalType(20, 3),
)


def test_they_are_those_that_spark_expects() -> None:
    inner = types.StructType([types.StructField(f"c{number}", kind) for number, kind in enumerate(PLAIN)])
    schema = types.StructType(
        [
            *inner.fields,
            types.StructField("struct", inner),
            types.StructField("list", types.ArrayType(inner)),
            types.StructField("map", types.MapType(types.StringType(), types.ArrayType(types.LongType()))),
        ]
    )
    assert arrow_schema(schema) == to_arrow_schema(schema, timezone="UTC")


def test_a_type_that_there_is_none_for() -> None:
    with pytest.raises(UnsupportedTypeError, match="A column cannot be INTERVAL DAY TO SECOND"):
        arrow_schema(types.StructType([types.StructField("i", types.DayTimeIntervalType())]))
