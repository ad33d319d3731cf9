"""What happens to a stream when the topic or the broker changes under it: by Spark's connector and without a jar."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from compat_tests.brokers.process import HOST, BrokerProcess, free_port
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.test_batch import send_numbers
from compat_tests.spark.topics import FORMATS, Topics, await_that, batches, drain, numbers, to_files
from compat_tests.wire.wire import until_all_know

# What the connector says, whatever was lost.
LOST: Final = r"(?s)Some data may have been lost.*set the source option \W*failOnDataLoss"


@pytest.mark.parametrize("kind", FORMATS, ids=list(FORMATS.values()))
def test_a_broker_killed_and_started_again_during_a_stream(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path, kind: str
) -> None:
    reader, client = Topics(spark, own_broker.bootstrap, kind), Confluent(own_broker.bootstrap)
    client.create_topic("killed", partitions=2)
    send_numbers(client, "killed", 100, partitions=2)
    table = tmp_path / "table"
    query = to_files(reader.stream("killed"), table, trigger={"processingTime": "200 milliseconds"})
    await_that(lambda: sum(batches(query)) == 100, query)
    own_broker.kill()
    own_broker.start()
    send_numbers(Confluent(own_broker.bootstrap), "killed", 100, partitions=2, start=100)
    await_that(lambda: sum(batches(query)) == 200, query)
    query.stop()
    assert numbers(spark.read.parquet(str(table))) == list(range(200))


def test_partitions_added_during_a_stream_are_read(
    reader: Topics, reference: Confluent, topic: str, tmp_path: Path
) -> None:
    send_numbers(reference, topic, 10)
    table = tmp_path / "table"
    query = to_files(reader.stream(topic), table, trigger={"processingTime": "200 milliseconds"})
    await_that(lambda: sum(batches(query)) == 10, query)
    reference.add_partitions(topic, 3)
    until_all_know(reader.bootstrap, topic, partitions=3)
    send_numbers(Confluent(reader.bootstrap), topic, 30, partitions=3, start=10)
    await_that(lambda: sum(batches(query)) == 40, query)
    query.stop()
    assert numbers(reader.spark.read.parquet(str(table))) == list(range(40))


def test_a_topic_deleted_and_created_again_fails_the_stream(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    send_numbers(reference, topic, 20)
    assert numbers(drain(reader.stream(topic), tmp_path / "table")) == list(range(20))
    recreate(reference, topic)
    send_numbers(Confluent(reader.bootstrap), topic, 5, start=100)
    with pytest.raises(Exception, match=r"changed from 20 to 5|read up to offset 20 and now ends at 5: .* Change "):
        drain(reader.stream(topic), tmp_path / "table")


def test_a_topic_created_again_is_read_on_without_fail_on_data_loss(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    send_numbers(reference, topic, 20)
    lenient = reader.stream(topic, failOnDataLoss=False)
    assert numbers(drain(lenient, tmp_path / "table")) == list(range(20))
    recreate(reference, topic)
    send_numbers(Confluent(reader.bootstrap), topic, 30, start=100)
    table = drain(lenient, tmp_path / "table")
    # Spark knows a topic by its name alone: the new one is read from the offset where the old one was left.
    assert numbers(table) == [*range(20), *range(120, 130)]


@pytest.mark.parametrize("fail", [True, False])
def test_offsets_that_are_gone(reader: Topics, reference: Confluent, topic: str, tmp_path: Path, fail: bool) -> None:
    send_numbers(reference, topic, 10)
    stream = reader.stream(topic, failOnDataLoss=fail)
    assert numbers(drain(stream, tmp_path / "table")) == list(range(10))
    send_numbers(reference, topic, 20, start=10)
    delete_records(reference, topic, 25)
    if fail:
        with pytest.raises(Exception, match=r"(?i)data[ _]?loss|missing|aged out|holds offsets 25 to 30.* Start from"):
            drain(stream, tmp_path / "table")
    else:
        assert numbers(drain(stream, tmp_path / "table")) == [*range(10), *range(25, 30)]


def test_a_partition_that_disappears_fails_the_stream(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    send_numbers(reference, topic, 20, partitions=2)
    assert numbers(drain(reader.stream(topic), tmp_path / "table")) == list(range(20))
    recreate(reference, topic)
    send_numbers(Confluent(reader.bootstrap), topic, 20, start=100)
    said = {
        "kafka": LOST,
        "ottla": f"{topic}-1 was read up to offset 10 and is gone: .* Change ",
    }
    with pytest.raises(Exception, match=said[reader.format]):
        drain(reader.stream(topic), tmp_path / "table")


def test_a_topic_deleted_during_a_stream(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    send_numbers(reference, topic, 20)
    table = tmp_path / "table"
    query = to_files(reader.stream(topic), table, trigger={"processingTime": "200 milliseconds"})
    await_that(lambda: sum(batches(query)) == 20, query)
    reference.delete_topic(topic)
    await_that(lambda: not query.isActive)
    said = {"kafka": "UnknownTopicOrPartition", "ottla": f"{topic}-0 was read up to offset 20 and is gone: .*"}
    assert re.search(said[reader.format], str(query.exception()))


def test_a_checkpoint_of_another_topic(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    first, second = new_topic(), new_topic()
    for topic in (first, second):
        send_numbers(reference, topic, 5)
    drain(reader.stream(first), tmp_path / "table")
    said = {
        "kafka": LOST,
        "ottla": f"belongs to a query on {first}, .* use a new checkpointLocation",
    }
    with pytest.raises(Exception, match=said[reader.format]):
        drain(reader.stream(second), tmp_path / "table")


def test_a_topic_that_is_not_there(reader: Topics, tmp_path: Path) -> None:
    said = {"kafka": "UnknownTopicOrPartition", "ottla": "no topic 'never-created' .*: check the name"}
    with pytest.raises(Exception, match=said[reader.format]):
        drain(reader.stream("never-created"), tmp_path / "table")


@pytest.mark.parametrize("kind", FORMATS, ids=list(FORMATS.values()))
def test_a_broker_that_does_not_answer(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    nobody = Topics(spark, f"{HOST}:{free_port()}", kind)
    said = {
        "kafka": "TimeoutException|Timed out",
        "ottla": r"No broker answers at .*\. Check kafka\.bootstrap\.servers",
    }
    with pytest.raises(Exception, match=said[kind]):
        drain(
            nobody.stream("any", **{"kafka.default.api.timeout.ms": 3000, "kafka.request.timeout.ms": 2000}),
            tmp_path / "table",
        )


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
    reader: Topics, reference: Confluent, topic: str, tmp_path: Path
) -> None:
    writer = reference.transactional(f"gaps-{topic}")
    for n in range(5):
        writer.begin()
        writer.send(topic, [Record(b"%d" % n)])
        writer.commit() if n % 2 == 0 else writer.abort()
    stream = reader.stream(topic, kafka__isolation__level="read_committed")
    assert numbers(drain(stream, tmp_path / "table")) == [0, 2, 4]
