"""What happens to a stream of Spark's own connector when the topic or the broker changes under it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.process import BrokerProcess
from compat_tests.spark.connector import Connector, await_that, batches, drain, numbers, to_files
from compat_tests.spark.test_batch import send_numbers


def test_a_broker_killed_and_started_again_during_a_stream(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    connector, client = Connector(spark, own_broker.bootstrap), Confluent(own_broker.bootstrap)
    client.create_topic("killed", partitions=2)
    send_numbers(client, "killed", 100, partitions=2)
    table = tmp_path / "table"
    query = to_files(connector.stream("killed"), table, trigger={"processingTime": "200 milliseconds"})
    await_that(lambda: sum(batches(query)) == 100, query)
    own_broker.kill()
    own_broker.start()
    send_numbers(Confluent(own_broker.bootstrap), "killed", 100, partitions=2, start=100)
    await_that(lambda: numbers(spark.read.parquet(str(table))) == list(range(200)), query)
    query.stop()


def test_partitions_added_during_a_stream_are_read(
    connector: Connector, reference: Confluent, topic: str, tmp_path: Path
) -> None:
    send_numbers(reference, topic, 10)
    table = tmp_path / "table"
    query = to_files(connector.stream(topic), table, trigger={"processingTime": "200 milliseconds"})
    await_that(lambda: sum(batches(query)) == 10, query)
    reference.add_partitions(topic, 3)
    send_numbers(Confluent(connector.bootstrap), topic, 30, partitions=3, start=10)
    await_that(lambda: sum(batches(query)) == 40, query)
    query.stop()
    assert numbers(connector.spark.read.parquet(str(table))) == list(range(40))


def test_a_topic_deleted_and_created_again_fails_the_stream(
    connector: Connector, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    send_numbers(reference, topic, 20)
    assert numbers(drain(connector.stream(topic), tmp_path / "table")) == list(range(20))
    recreate(reference, topic)
    send_numbers(Confluent(connector.bootstrap), topic, 5, start=100)
    with pytest.raises(Exception, match=r"(?i)data[ _]?loss|missing|changed"):
        drain(connector.stream(topic), tmp_path / "table")


def test_a_topic_created_again_is_read_on_without_fail_on_data_loss(
    connector: Connector, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    send_numbers(reference, topic, 20)
    lenient = connector.stream(topic, failOnDataLoss=False)
    assert numbers(drain(lenient, tmp_path / "table")) == list(range(20))
    recreate(reference, topic)
    send_numbers(Confluent(connector.bootstrap), topic, 30, start=100)
    table = drain(lenient, tmp_path / "table")
    # Spark knows a topic by its name alone: the new one is read from the offset where the old one was left.
    assert numbers(table) == [*range(20), *range(120, 130)]


@pytest.mark.parametrize("fail", [True, False])
def test_offsets_that_are_gone(
    connector: Connector, reference: Confluent, topic: str, tmp_path: Path, fail: bool
) -> None:
    send_numbers(reference, topic, 10)
    stream = connector.stream(topic, failOnDataLoss=fail)
    assert numbers(drain(stream, tmp_path / "table")) == list(range(10))
    send_numbers(reference, topic, 20, start=10)
    delete_records(reference, topic, 25)
    if fail:
        with pytest.raises(Exception, match=r"(?i)data[ _]?loss|missing|aged out"):
            drain(stream, tmp_path / "table")
    else:
        assert numbers(drain(stream, tmp_path / "table")) == [*range(10), *range(25, 30)]


def recreate(client: Confluent, topic: str) -> None:
    """Deletes the topic and creates it again, empty."""
    client.delete_topic(topic)
    await_that(lambda: topic not in client.topics())
    client.create_topic(topic)
    await_that(lambda: topic in client.topics())


def delete_records(client: Confluent, topic: str, before: int) -> None:
    futures = client._admin.delete_records([TopicPartition(topic, 0, before)])
    for future in futures.values():
        future.result(60)


def test_a_compacted_topic_and_gaps_of_transactions(
    connector: Connector, reference: Confluent, topic: str, tmp_path: Path
) -> None:
    writer = reference.transactional(f"gaps-{topic}")
    for n in range(5):
        writer.begin()
        writer.send(topic, [Record(b"%d" % n)])
        writer.commit() if n % 2 == 0 else writer.abort()
    stream = connector.stream(topic, kafka__isolation__level="read_committed")
    assert numbers(drain(stream, tmp_path / "table")) == [0, 2, 4]
