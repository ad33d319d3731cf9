"""Values whose schema gives a field another type than the table's column has: none is changed without a word."""

from __future__ import annotations

import io
import json
import re
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.pipeline.values.avro_values import AvroFormat
from ottla.pipeline.values.formats import BARE
from ottla.pipeline.values.registered import _BatchDecoder
from ottla.pipeline.values.schemas import SchemaText

DAY = {"type": "int", "logicalType": "date"}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}

COUNTS = {"type": "map", "values": ["null", "int"]}


def stored(column: DataType, written: Any, value: Any) -> Any:
    """What a table's column holds of a value that was written as an Avro type, or the reason why it does not."""
    kind = AvroFormat()
    schema = {"type": "record", "name": "Row", "fields": [{"name": "total", "type": written}]}
    compiled = kind.compile(SchemaText("AVRO", json.dumps(schema), {}), BARE)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), {"total": value})
    columns = StructType([StructField("total", column)])
    decoder = _BatchDecoder(kind, {BARE: compiled}, {}, columns, framed=False)
    (batch,) = decoder(iter([pa.RecordBatch.from_pydict({"value": pa.array([file.getvalue()], pa.binary())})]))
    (row,) = batch.to_pylist()
    return row["reason"] or row["data"]["total"]


@pytest.mark.parametrize(
    ("column", "written", "value", "why"),
    [
        (LongType(), "double", 12.5, "12.5 is no BIGINT"),
        (IntegerType(), "double", 0.1, "0.1 is no INT"),
        (LongType(), MONEY, Decimal("12.50"), "12.50 is no BIGINT"),
        (FloatType(), "double", 0.1, "0.1 is no FLOAT"),
        (FloatType(), "double", 1e300, r"1e\+300 is no FLOAT"),
        (FloatType(), "long", 16_777_217, "16777217 is no FLOAT"),
        (DateType(), TIME, 1_600_000_000_000, "is no DATE"),
        (DateType(), "int", 5, "5 is no DATE"),
        (TimestampType(), "long", 5, "5 is no TIMESTAMP"),
        (DoubleType(), "boolean", True, "True is no DOUBLE"),
        (ArrayType(LongType()), {"type": "array", "items": "double"}, [1.0, 1.5], "1.5 is no BIGINT"),
        (MapType(StringType(), IntegerType()), {"type": "map", "values": "double"}, {"a": 0.5}, "0.5 is no INT"),
        (
            StructType([StructField("a", IntegerType())]),
            {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "float"}]},
            {"a": 0.5},
            "field 'a': 0.5 is no INT",
        ),
    ],
)
def test_what_would_be_changed_is_a_dead_letter(column: DataType, written: Any, value: Any, why: str) -> None:
    reason = stored(column, written, value)
    assert isinstance(reason, str), reason
    assert re.search(f"^the value does not fit the table's columns: field 'total': .*{why}$", reason), reason


@pytest.mark.parametrize(
    ("column", "written", "value", "held"),
    [
        (LongType(), "int", 12, 12),
        (LongType(), "double", 12.0, 12),
        (FloatType(), "double", 0.5, 0.5),
        (FloatType(), "float", 0.1, pytest.approx(0.1)),
        (DoubleType(), "float", 0.5, 0.5),
        (DoubleType(), "long", 7, 7.0),
        (DoubleType(), ["null", "long"], None, None),
        (
            MapType(StringType(), DoubleType()),
            {"type": "map", "values": ["null", "int"]},
            {"a": 1, "b": None},
            [("a", 1), ("b", None)],
        ),
    ],
)
def test_what_fits_is_held(column: DataType, written: Any, value: Any, held: Any) -> None:
    assert stored(column, written, value) == held
