"""Rows as Spark 4.0 hands them to the writers of streams, in the Arrow batches that later versions hand over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.types import StructType

from ottla.pipeline.values.arrow_types import arrow_schema

__all__ = ["as_batches"]

_BATCH_ROWS: Final = 10_000  # As Spark's own batches.


def as_batches(rows: Iterator[Row], schema: StructType) -> Iterator[Any]:
    """The rows in their order, with the columns of `schema`; other columns are left out."""
    kinds = arrow_schema(schema)
    while part := list(islice(rows, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in part], schema=kinds)
