"""Topics as Spark reads them, by its own connector or by `format("ottla")`, in the few words that scenarios need."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

FORMATS: Final = {"kafka": "connector", "ottla": "no-jar"}
"""Spark's own connector, and the source that needs no jar: Spark's names for them, and what scenarios call them."""

ANSWER_TIMEOUT_S: Final = 400.0

# How long they wait for a broker: the connector's own default is two minutes.
PATIENCE: Final = {"kafka.request.timeout.ms": "20000", "kafka.default.api.timeout.ms": "25000"}


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one broker: read by the format of that name, written by Spark's own connector."""

    spark: SparkSession
    bootstrap: str
    format: str = "kafka"

    def batch(self, topic: str | None = None, **options: object) -> DataFrame:
        return self._read(self.spark.read, topic, options)

    def stream(self, topic: str | None = None, **options: object) -> DataFrame:
        return self._read(self.spark.readStream, topic, {"startingOffsets": "earliest", **options})

    def _read(self, reader: Any, topic: str | None, options: Mapping[str, object]) -> DataFrame:
        reader = reader.format(self.format).option("kafka.bootstrap.servers", self.bootstrap)
        subscribed = {"subscribe": topic} if topic else {}
        for name, value in {**PATIENCE, **subscribed, **options}.items():
            reader = reader.option(name.replace("__", "."), option_text(value))
        rows: DataFrame = reader.load()
        return rows

    def write(self, rows: DataFrame, topic: str | None = None) -> None:
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        (writer.option("topic", topic) if topic else writer).save()


def option_text(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)


def values(rows: DataFrame) -> list[str]:
    """The values as text, in the order of partition and offset."""
    return [row.text for row in rows.orderBy("partition", "offset").selectExpr("string(value) as text").collect()]


def numbers(rows: DataFrame) -> list[int]:
    """The values as numbers, in order of size: what was read, how often, no matter how it was split."""
    return sorted(int(text) for text in values(rows))


def to_files(
    stream: DataFrame, folder: Path, kind: str = "parquet", *, trigger: Mapping[str, Any] | None = None
) -> StreamingQuery:
    """Starts a query that keeps partition, offset and value in a table in `folder`; its checkpoint lies beside it."""
    return (
        stream.select("topic", "partition", "offset", "value")
        .writeStream.format(kind)
        .option("checkpointLocation", str(folder.with_name(folder.name + "-checkpoint")))
        .trigger(**(trigger or {"availableNow": True}))
        .start(str(folder))
    )


def drain(stream: DataFrame, folder: Path, kind: str = "parquet") -> DataFrame:
    """Everything that is there now goes into the table; the table."""
    query = to_files(stream, folder, kind)
    finish(query)
    return stream.sparkSession.read.format(kind).load(str(folder))


def finish(query: StreamingQuery) -> None:
    """Waits until an availableNow query has ended; raises what ended it."""
    if not query.awaitTermination(int(ANSWER_TIMEOUT_S)):
        query.stop()
        raise TimeoutError("the query did not end in time")


def await_that(holds: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Waits until it holds, and no longer than the query lives."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while not holds():
        if query is not None and not query.isActive:
            raise AssertionError(f"the query ended: {query.exception()}")
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.2)


def batches(query: StreamingQuery) -> list[int]:
    """How many rows each batch that had any brought."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def rows_of(table: DataFrame) -> list[Row]:
    return table.orderBy("partition", "offset").collect()


def stop_queries(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()
