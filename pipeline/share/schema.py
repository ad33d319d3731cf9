"""The rows of a share group: those of `format("ottla")`, and what the group knows of each record."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from ottla.pipeline.decoder import arrow_schema, spark_schema

__all__ = ["share_arrow_schema", "share_spark_schema"]

_MORE: Final = (
    pa.field("deliveryCount", pa.int32()),
    pa.field("deliveryLimit", pa.int32()),
    pa.field("deadLetterTopic", pa.string()),
)


def share_arrow_schema(*, include_headers: bool) -> Any:
    """The schema of every Arrow batch."""
    found = arrow_schema(include_headers=include_headers)
    for field in _MORE:
        found = found.append(field)
    return found


def share_spark_schema(*, include_headers: bool) -> str:
    """The same, as Spark's DDL."""
    return (
        f"{spark_schema(include_headers=include_headers)}, deliveryCount int, deliveryLimit int, deadLetterTopic string"
    )
