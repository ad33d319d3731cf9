"""The rows that Spark sees: those of Spark's own Kafka connector, column for column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["arrow_schema", "header_type", "spark_schema"]


def header_type() -> Any:
    """Arrow's type of the column `headers`: a list of (key, value)."""
    entry = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.list_(pa.field("element", entry))


def arrow_schema(*, include_headers: bool) -> Any:
    """The schema of every Arrow batch; Spark wants it to equal its own exactly, time zone and nullability included."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if include_headers:
        fields.append(pa.field("headers", header_type()))
    return pa.schema(fields)


def spark_schema(*, include_headers: bool) -> str:
    """The same, as Spark's DDL."""
    columns = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
    )
    return columns + (", headers array<struct<key: string, value: binary>>" if include_headers else "")
