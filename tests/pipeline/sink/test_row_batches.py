"""Rows one by one, as Spark 4.0 hands them over."""

from __future__ import annotations

from pyspark.sql import Row
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructField, StructType

from ottla.pipeline.sink.row_batches import as_batches

SCHEMA = StructType(
    [
        StructField("value", BinaryType()),
        StructField("key", StringType()),
        StructField("partition", IntegerType()),
        StructField(
            "headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
    ]
)


def test_rows_become_batches_of_limited_length() -> None:
    rows = [
        Row(value=b"%d" % number, key=None, partition=number, other=object(), headers=None) for number in range(25_000)
    ]
    batches = list(as_batches(iter(rows), SCHEMA))
    assert [batch.num_rows for batch in batches] == [10_000, 10_000, 5_000]
    assert all(batch.schema.names == SCHEMA.names for batch in batches)
    assert [number for batch in batches for number in batch.column("partition").to_pylist()] == list(range(25_000))


def test_what_is_within_rows_is_kept() -> None:
    row = Row(
        value=bytearray(b"\x00\xff"),
        key="k",
        partition=None,
        headers=[Row(key="h", value=b"1"), Row(key="", value=None)],
    )
    (batch,) = as_batches(iter([row]), SCHEMA)
    assert batch.to_pylist() == [
        {
            "value": b"\x00\xff",
            "key": "k",
            "partition": None,
            "headers": [{"key": "h", "value": b"1"}, {"key": "", "value": None}],
        }
    ]
    assert list(as_batches(iter([]), SCHEMA)) == []
