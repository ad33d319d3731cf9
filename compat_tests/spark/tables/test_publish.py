"""Tables and queries sent to topics by `ottla table publish`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.test_writes import everything
from ottla.kproto.partitioner import partition_for_key
from ottla.pipeline.errors import TopicError
from ottla.pipeline.tables.errors import ConfigError, TableError
from ottla.pipeline.tables.publish import Publication, publish


@pytest.mark.parametrize("source", ["ottla", "kafka"])
def test_a_table_with_keys_and_headers(
    spark: SparkSession,
    broker: BrokerProcess,
    reference: Confluent,
    new_topic: Callable[..., str],
    tmp_path: Path,
    source: str,
) -> None:
    topic = new_topic(partitions=3)
    path = str(tmp_path / "table")
    rows = spark.range(3_000).selectExpr("id", "concat('k', id % 7) as k", "'spark' as origin", "array(id) as parts")
    rows.write.format("delta").save(path)
    sent = publish(
        spark,
        Publication(topic, broker.bootstrap, table=path, key="k", headers=("origin",), source=source),
    )
    assert sent == 3_000
    seen = {}
    for partition in range(3):
        count = sum(1 for n in range(3_000) if partition_for_key(b"k%d" % (n % 7), 3) == partition)
        for record in everything(reference, topic, count, partition):
            document = json.loads(record.value or b"")
            assert record.headers == (("origin", b"spark"),)
            assert record.key == b"k%d" % (document["id"] % 7)
            seen[document["id"]] = document
    assert sorted(seen) == list(range(3_000))
    assert seen[5] == {"id": 5, "parts": [5]}


def test_a_query_with_one_column_as_the_value(
    spark: SparkSession, broker: BrokerProcess, reference: Confluent, topic: str
) -> None:
    query = "SELECT id, CAST(id * 2 AS STRING) AS twice FROM range(10)"
    assert publish(spark, Publication(topic, broker.bootstrap, query=query, key="id", value="twice")) == 10
    assert {(record.key, record.value) for record in everything(reference, topic, 10)} == {
        (b"%d" % n, b"%d" % (2 * n)) for n in range(10)
    }


def test_mistakes_are_sentences(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    with pytest.raises(TopicError, match=r"There is no topic 'nowhere' at .*: create it"):
        publish(spark, Publication("nowhere", broker.bootstrap, query="SELECT 1"))
    with pytest.raises(ConfigError, match="There is no column 'k': there are a"):
        publish(spark, Publication(topic, broker.bootstrap, query="SELECT 1 AS a", key="k"))
    with pytest.raises(TableError, match="/no/such/table cannot be read: "):
        publish(spark, Publication(topic, broker.bootstrap, table="/no/such/table"))
