"""Spark at a broker that encrypts and asks who is there: its own connector, and the source without a jar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from pyspark.sql import SparkSession

from compat_tests.spark.topics import FORMATS
from ottla.testing import Broker

VALUES = [str(number) for number in range(100)]


@pytest.fixture(scope="module")
def secure() -> Iterator[Broker]:
    """It knows alice, who may do everything to topics that begin with hers, and asks her for a password over TLS."""
    acls = ["alice all topic:alice-*", "alice all group:*", "alice all cluster"]
    with Broker(users={"alice": "wonder"}, acls=acls, tls=True) as broker:
        yield broker


def options(broker: Broker) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in broker.java_config("alice").items()}


@pytest.mark.parametrize("source", FORMATS, ids=list(FORMATS.values()))
def test_batches_and_streams(spark: SparkSession, secure: Broker, source: str, tmp_path: Path) -> None:
    topic = f"alice-{FORMATS[source].replace(' ', '-')}"
    known = options(secure)
    rows = spark.createDataFrame([(value,) for value in VALUES], "value STRING")
    rows.write.format("kafka").options(**known, topic=topic).save()
    read = spark.read.format(source).options(**known, subscribe=topic).load()
    assert sorted(VALUES) == sorted(bytes(row.value).decode() for row in read.collect())
    stream = spark.readStream.format(source).options(**known, subscribe=topic, startingOffsets="earliest").load()
    checkpoint = str(tmp_path / "checkpoint")
    query = (
        stream.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(str(tmp_path / "table"))
    )
    assert query.awaitTermination(120)
    assert sorted(VALUES) == sorted(row.value for row in spark.read.parquet(str(tmp_path / "table")).collect())
