"""What `ottla table sync` does when the topic or the broker changes under it, or the job is not what it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.tables.jobs import Tables, send
from compat_tests.spark.test_faults import delete_records, recreate
from compat_tests.spark.topics import FORMATS, await_that
from ottla.pipeline.errors import BrokerUnavailableError, DataLossError, TopicError
from ottla.pipeline.tables.errors import CheckpointError, TableError


@pytest.mark.parametrize("source", FORMATS, ids=list(FORMATS.values()))
def test_a_broker_killed_and_started_again_under_a_job(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path, source: str
) -> None:
    tables, client = Tables(spark, own_broker.bootstrap, tmp_path / "lake", source), Confluent(own_broker.bootstrap)
    client.create_topic("killed", partitions=2)
    send(client, "killed", [{"id": n} for n in range(100)])
    with tables.following({"topic": "killed"}) as job:
        job.await_rows(100)
        own_broker.kill()
        own_broker.start()
        send(Confluent(own_broker.bootstrap), "killed", [{"id": n} for n in range(100, 200)])
        job.await_rows(200)
    assert sorted(row.id for row in tables.table("killed").collect()) == list(range(200))


@pytest.mark.parametrize("source", FORMATS, ids=list(FORMATS.values()))
def test_a_broker_that_stays_away_for_longer_than_spark_waits(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path, source: str
) -> None:
    tables, client = Tables(spark, own_broker.bootstrap, tmp_path / "lake", source), Confluent(own_broker.bootstrap)
    client.create_topic("away")
    send(client, "away", [{"id": n} for n in range(10)])
    impatient = {"request.timeout.ms": "1000", "default.api.timeout.ms": "1500"}
    with tables.following({"topic": "away"}, kafka=impatient) as job:
        job.await_rows(10)
        own_broker.kill()
        await_that(lambda: not spark.streams.active)
        own_broker.start()
        send(Confluent(own_broker.bootstrap), "away", [{"id": n} for n in range(10, 20)])
        job.await_rows(20)
    assert sorted(row.id for row in tables.table("away").collect()) == list(range(20))


def test_partitions_added_under_a_job(tables: Tables, reference: Confluent, topic: str) -> None:
    send(reference, topic, [{"id": n} for n in range(10)])
    with tables.following({"topic": topic}) as job:
        job.await_rows(10)
        reference.add_partitions(topic, 4)
        producer = Confluent(tables.bootstrap).producer()
        producer.send(topic, [Record(b'{"id": %d}' % n, partition=n % 4) for n in range(10, 50)])
        producer.close()
        job.await_rows(50)
    assert sorted(row.id for row in tables.table(topic).collect()) == list(range(50))


@pytest.mark.parametrize("count", [5, 50], ids=["shorter", "longer"])
def test_a_topic_created_again_under_a_job(
    tables: Tables, reference: Confluent, new_topic: Callable[..., str], count: int
) -> None:
    """Whether or not the new topic reaches the offset where the job stands: no record of it goes into the table."""
    topic = new_topic()
    send(reference, topic, [{"id": n} for n in range(20)])
    with tables.following({"topic": topic}, interval="3 seconds") as job:
        job.await_rows(20)
        recreate(reference, topic)
        send(Confluent(tables.bootstrap), topic, [{"id": n} for n in range(100, 100 + count)])
        reason = job.await_failure()
    assert "was deleted and created again since the checkpoint" in str(reason)
    assert sorted(row.id for row in tables.table(topic).collect()) == list(range(20))


def test_a_topic_deleted_under_a_job(tables: Tables, reference: Confluent, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    send(reference, topic, [{"id": n} for n in range(20)])
    with tables.following({"topic": topic}) as job:
        job.await_rows(20)
        reference.delete_topic(topic)
        reason = job.await_failure()
    assert f"There is no topic {topic!r} at " in str(reason)


def test_faults_are_sentences(tables: Tables, reference: Confluent, new_topic: Callable[..., str]) -> None:
    topic, other = new_topic(), new_topic()
    send(reference, topic, [{"id": 1}])
    tables.sync({"topic": topic})
    with pytest.raises(TopicError, match=r"There is no topic 'never-created' at .*: create it, or correct topic"):
        tables.sync({"topic": "never-created"})
    with pytest.raises(CheckpointError, match=f"belongs to topic '{topic}', not '{other}': give this table"):
        tables.sync({"topic": other, "name": topic})
    with pytest.raises(TableError, match=r"has rows already, but the checkpoint .* is new"):
        tables.sync({"topic": topic, "name": "again"})
    with pytest.raises(BrokerUnavailableError, match=r"No broker answers at 127\.0\.0\.1:1"):
        tables.sync({"topic": topic}, bootstrap="127.0.0.1:1")


def test_a_topic_created_again_is_noticed(tables: Tables, reference: Confluent, topic: str) -> None:
    send(reference, topic, [{"id": 1}])
    tables.sync({"topic": topic})
    recreate(reference, topic)
    with pytest.raises(CheckpointError, match="was deleted and created again"):
        tables.sync({"topic": topic})


def test_offsets_that_retention_removed(tables: Tables, reference: Confluent, topic: str) -> None:
    send(reference, topic, [{"id": n} for n in range(10)])
    tables.sync({"topic": topic})
    send(reference, topic, [{"id": n} for n in range(10, 20)])
    delete_records(reference, topic, 15)
    with pytest.raises(DataLossError, match=r"Offsets 10 to 14 of .* were removed by retention .* on_data_loss"):
        tables.sync({"topic": topic})
    tables.sync({"topic": topic, "on_data_loss": "continue"})
    assert sorted(row.id for row in tables.table(topic).collect()) == [*range(10), *range(15, 20)]
