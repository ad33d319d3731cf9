"""A share group in a Spark session, as a job uses it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.confluent import Confluent
from ottla.pipeline.share import Outcomes, ShareDataSource

NewTopic = Callable[..., str]

pytestmark = [
    pytest.mark.java,
    # pyspark leaves the sockets of its gateway and of its workers to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What pyspark left open is collected here, where its warnings are expected, and not in another test."""
    yield
    gc.collect()


def test_a_job_takes_accepts_releases_and_rejects(
    spark: SparkSession,
    broker: OttlaBroker,
    client: Confluent,
    new_topic: NewTopic,
    group: str,
    tmp_path: Path,
    produce_values: Any,
) -> None:
    """Runs of a nightly job: each record is worked on once, but for the one that is released the first time."""
    spark.dataSource.register(ShareDataSource)
    topic = new_topic(partitions=2, records=10)
    outcomes = Outcomes(tmp_path / "outcomes")

    def work(rows: DataFrame, batch: int) -> None:
        judged = rows.withColumn(
            "outcome",
            F.when(F.expr("string(value) = '7'"), "reject").when(
                F.expr("string(value) = '3' and deliveryCount = 1"), "release"
            ),
        )
        outcomes.record(judged, batch)
        judged.selectExpr("partition", "offset", "string(value) as value", "deliveryCount", "outcome").write.mode(
            "append"
        ).parquet(str(tmp_path / "table"))

    def run() -> None:
        query = (
            spark.readStream.format("ottla-share")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("kafka.group.id", group)
            .option("subscribe", topic)
            .option("minPartitions", 3)
            .option("outcomes", str(tmp_path / "outcomes"))
            .option("kafka.default.api.timeout.ms", 10000)
            .load()
            .writeStream.foreachBatch(work)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)

    run()
    produce_values(client, topic, b"10", partitions=2)
    run()
    run()

    print(
        list((tmp_path / "outcomes").iterdir()),
        [(p.name, p.read_text()[:400]) for p in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")],
    )
    table = spark.read.parquet(str(tmp_path / "table"))
    found = sorted((row.partition, row.offset, row.deliveryCount) for row in table.collect())
    expected = [(part, offset, 1) for part in range(2) for offset in range(11)] + [(0, 3, 2), (1, 3, 2)]
    assert found == sorted(expected)
    assert {row.outcome for row in table.where("value = '7'").collect()} == {"reject"}
