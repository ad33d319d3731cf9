"""Numbers with more digits than their column has: dead letters, and not rounded."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ottla.pipeline.values.decoder import DATA, REASON
from ottla.pipeline.values.json_values import JsonDecoder, explain

MONEY = DecimalType(10, 2)
SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("total", MONEY),
        StructField("parts", ArrayType(StructType([StructField("share", DecimalType(4, 2))]))),
        StructField("by_name", MapType(StringType(), MONEY)),
        StructField("big", DecimalType(20, 0)),
    ]
)
GOOD = [
    b'{"id": 1, "total": 12.5, "parts": [{"share": 99.99}, {"share": null}, null], "by_name": {"a": 1.5}}',
    b'{"id": 2, "total": 1.20000, "big": 12345678901234567890}',
    b'{"id": 3, "total": 12, "parts": []}',
    b'{"id": 4}',
]
BAD = {
    b'{"id": 5, "total": 1.235}': "field total is 1.235, not decimal(10,2)",
    b'{"id": 6, "total": 123456789.5}': "field total is 123456789.5, not decimal(10,2)",
    b'{"id": 7, "parts": [{"share": 1.5}, {"share": 9.999}]}': "field parts[].share is 9.999, not decimal(4,2)",
    b'{"id": 8, "parts": [{"share": 99.999}]}': "field parts[].share is 99.999, not decimal(4,2)",
    b'{"id": 9, "big": 1.5}': "field big is 1.5, not decimal(20,0)",
}


@pytest.mark.java
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_digit_is_lost(spark: SparkSession) -> None:
    decoder = JsonDecoder(SCHEMA, evolves=False)
    rows = spark.createDataFrame([(bytearray(value),) for value in (*GOOD, *BAD)], "value BINARY")

    decoded = decoder.decode(rows)
    found = {bytes(row.value): (row[REASON], row[DATA]) for row in decoded.collect()}

    assert {value: reason for value, (reason, _) in found.items() if reason is not None} == dict.fromkeys(
        BAD, "the value does not fit"
    )
    first, second = found[GOOD[0]][1], found[GOOD[1]][1]
    assert decoded.schema[DATA].dataType == SCHEMA
    assert (first.total, first.parts[0].share, first.by_name) == (
        Decimal("12.50"),
        Decimal("99.99"),
        {"a": Decimal("1.50")},
    )
    assert (second.total, second.big) == (Decimal("1.20"), Decimal("12345678901234567890"))


@pytest.mark.parametrize(("value", "reason"), BAD.items())
def test_the_reason_names_the_field(value: bytes, reason: str) -> None:
    assert explain(value, SCHEMA.json()) == reason


@pytest.mark.parametrize("value", GOOD)
def test_what_fits_has_no_reason(value: bytes) -> None:
    assert explain(value, SCHEMA.json()) is None
