"""What the pipeline's tests share: a broker, topics of their own, and a Spark session that starts once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests import iceberg, java
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark import session


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaBroker]:
    """The broker that the tests share."""
    with OttlaBroker(tmp_path_factory.mktemp("pipeline")) as process:
        yield process


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OttlaBroker]:
    """A broker that the test may stop, and whose folder is its own."""
    with OttlaBroker(tmp_path / "broker") as process:
        yield process


@pytest.fixture(scope="session")
def client(broker: OttlaBroker) -> Confluent:
    return Confluent(broker.bootstrap)


_numbers = itertools.count(1)


@pytest.fixture
def new_topic(client: Confluent) -> Callable[..., str]:
    """Creates a topic with so many records in each partition: `new_topic(partitions=2, records=10)`."""

    def create(partitions: int = 1, records: int = 0, **configs: str) -> str:
        topic = f"pipeline-{next(_numbers)}"
        # The records are of 2023, and not to be taken by retention.
        client.create_topic(topic, partitions=partitions, configs={"retention.ms": "-1"} | configs)
        produce(client, topic, *(b"%d" % number for number in range(records)), partitions=partitions)
        return topic

    return create


def produce(client: Confluent, topic: str, *values: bytes, partitions: int = 1) -> None:
    """The same values into each of the first partitions, with a timestamp of 1,000 ms for each record before."""
    if not values:
        return
    producer = client.producer()
    try:
        producer.send(
            topic,
            [
                Record(value, timestamp_ms=1_700_000_000_000 + 1000 * number, partition=partition)
                for partition in range(partitions)
                for number, value in enumerate(values)
            ],
        )
    finally:
        producer.close()


@pytest.fixture(scope="session")
def produce_values() -> Callable[..., None]:
    return produce


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The session that all tests of this process share."""
    if reason := java.missing() or session.missing():
        pytest.skip(reason)
    return session.shared()


@pytest.fixture(scope="session")
def rest_catalogues() -> Iterator[iceberg.RestCatalogues]:
    """Apache Iceberg's REST catalogues, which the tests share."""
    if reason := iceberg.missing():
        pytest.skip(reason)
    with iceberg.rest_catalogues() as catalogues:
        yield catalogues
