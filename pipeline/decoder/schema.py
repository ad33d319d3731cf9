"""The rows that Spark sees: those of Spark's own Kafka connector, column for column."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow as pa

__all__ = ["COLUMNS", "arrow_schema", "header_type", "spark_schema"]

_DDL: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}
COLUMNS: Final = tuple(_DDL)
"""The names of all columns, in their order."""


def header_type() -> Any:
    """Arrow's type of the column `headers`: a list of (key, value)."""
    entry = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.list_(pa.field("element", entry))


def arrow_schema(*, include_headers: bool, columns: Collection[str] | None = None) -> Any:
    """The schema of every Arrow batch; Spark wants it to equal its own exactly, time zone and nullability included.

    `columns` are the names of those that are wanted, without which it has them all.
    """
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
    return pa.schema([field for field in fields if columns is None or field.name in columns])


def spark_schema(*, include_headers: bool, columns: Collection[str] | None = None) -> str:
    """The same, as Spark's DDL."""
    names = arrow_schema(include_headers=include_headers, columns=columns).names
    return ", ".join(f"{name} {_DDL[name]}" for name in names)
