"""What is said of a JSON value that does not fit."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.pipeline.values.json_values import explain

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("price", DoubleType()),
        StructField("name", StringType()),
        StructField("paid", BooleanType()),
        StructField("at", TimestampType()),
        StructField("lines", ArrayType(StructType([StructField("count", LongType())]))),
        StructField("counts", MapType(StringType(), LongType())),
    ]
).json()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"id": "7"}', 'field id is "7", not bigint'),
        (b'{"id": 7.5}', "field id is 7.5, not bigint"),
        (b'{"id": 99999999999999999999}', "field id is 99999999999999999999, not bigint"),
        (b'{"id": true}', "field id is true, not bigint"),
        (b'{"price": "dear"}', 'field price is "dear", not double'),
        (b'{"paid": 1}', "field paid is 1, not boolean"),
        (b'{"lines": {"count": 1}}', 'field lines is {"count": 1}, not array<struct<count:bigint>>'),
        (b'{"lines": [{"count": 1}, {"count": "x"}]}', 'field lines[].count is "x", not bigint'),
        (b'{"counts": {"a": []}}', "field counts.* is [], not bigint"),
    ],
)
def test_the_field_is_named(value: bytes, reason: str) -> None:
    assert explain(value, SCHEMA) == reason


def test_what_is_not_json_says_where() -> None:
    assert explain(b'{"id": 1', SCHEMA) == ("the value is not JSON: Expecting ',' delimiter: line 1 column 9 (char 8)")


@pytest.mark.parametrize(
    "value", [b'{"id": 1, "price": 2, "name": 5, "paid": false, "lines": [null], "other": {}}', b"{}", b'{"id": null}']
)
def test_what_fits_has_no_reason(value: bytes) -> None:
    assert explain(value, SCHEMA) is None
