"""What only a Spark session shows: the source and the scan by their names, as a job uses them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent

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


def run(rows: DataFrame, folder: Path) -> None:
    """Everything that there is now, into Parquet, from where the checkpoint says."""
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "table"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(240)


def test_one_word_changes(spark: SparkSession, broker: OttlaBroker, client: Confluent, new_topic: NewTopic) -> None:
    """The same rows and columns by the connector, without a jar, and from the files."""
    topic = new_topic(partitions=2)
    producer = client.producer(codec="lz4")
    producer.send(
        topic,
        [
            Record(b"%d" % n, b"key", (("h", b"1"),) if n % 2 else (), partition=n % 2, timestamp_ms=n)
            for n in range(50)
        ],
    )
    producer.close()

    def read(name: str, **options: Any) -> DataFrame:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}
        return spark.read.format(name).options(**(given | options)).load()

    connector, source = read("kafka"), read("ottla")
    scan = read("ottla-segments", path=str(broker.folder / "data"))

    assert source.schema == scan.schema == connector.schema
    expected = sorted(connector.collect(), key=lambda row: (row.partition, row.offset))
    for rows in (source, scan):
        assert sorted(rows.collect(), key=lambda row: (row.partition, row.offset)) == expected


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession,
    broker: OttlaBroker,
    client: Confluent,
    new_topic: NewTopic,
    tmp_path: Path,
    produce_values: Any,
) -> None:
    topic = new_topic(partitions=2, records=10)
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 8)
        .load()
        .selectExpr("partition", "offset", "cast(value as string) as value")
    )

    run(rows, tmp_path)
    produce_values(client, topic, b"10", b"11", partitions=2)
    run(rows, tmp_path)

    found = spark.read.parquet(str(tmp_path / "table")).orderBy("partition", "offset").collect()
    assert [tuple(row) for row in found] == [(part, n, str(n)) for part in range(2) for n in range(12)]


def test_what_is_wrong_reaches_the_job_as_a_sentence(
    spark: SparkSession, broker: OttlaBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(records=1)

    def load(reader: Any, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
        return reader.format("ottla").options(**(given | options)).load()  # type: ignore[no-any-return]

    with pytest.raises(AnalysisException, match=r"no topic 'no-such-topic' .* check the name"):
        load(spark.read, subscribe="no-such-topic").collect()
    with pytest.raises(AnalysisException, match="no option startingoffset"):
        load(spark.read, startingOffset="earliest").collect()
    with pytest.raises(AnalysisException, match=r"leave out \.schema"):
        spark.read.format("ottla").option("subscribe", topic).option(
            "kafka.bootstrap.servers", broker.bootstrap
        ).schema("value string").load().collect()
    run(load(spark.readStream), tmp_path)
    with pytest.raises(
        (StreamingQueryException, PySparkException), match="use a new checkpointLocation for another topic"
    ):
        run(load(spark.readStream, subscribe=new_topic(records=1)), tmp_path)
