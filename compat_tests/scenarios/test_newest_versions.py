"""Java's newest client sends the newest versions of its requests, and each connection takes one round trip to begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import HOST, BrokerProcess
from compat_tests.brokers.taps import Tap
from compat_tests.clients.base import BEGINNING, AdminClient, Record
from compat_tests.clients.java_client import JavaClient, JavaDriver
from ottla.kproto.api_keys import ApiKey

pytestmark = pytest.mark.java

NEWEST = {
    ApiKey.API_VERSIONS: {5},
    ApiKey.PRODUCE: {13},
    ApiKey.FETCH: {18},
    ApiKey.INIT_PRODUCER_ID: {5},
    ApiKey.TXN_OFFSET_COMMIT: {6},
    ApiKey.END_TXN: {5},
    ApiKey.ADD_OFFSETS_TO_TXN: set(),
}
#: Later ones are those of brokers.
ADD_PARTITIONS_OF_CLIENTS = range(4)


@pytest.fixture
def tap() -> Iterator[Tap]:
    with closing(Tap()) as made:
        yield made


@pytest.fixture
def tapped(broker_kind: str, tap: Tap, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that tells clients to come by way of the tap."""
    kinds: dict[str, type[ApacheKafka | OttlaBroker]] = {"kafka": ApacheKafka, "ottla": OttlaBroker}
    if broker_kind not in kinds:
        pytest.skip("one broker is tapped")
    # Its ready line names the port that it tells clients: it is told on which one to listen.
    told = {"advertised.listeners": f"PLAINTEXT://{HOST}:{tap.port}"}
    with kinds[broker_kind](tmp_path, tap.target_port, overrides=told) as process:
        yield process


def test_java_moves_records_in_transactions_of_version_2(
    tapped: BrokerProcess, tap: Tap, java_driver: JavaDriver
) -> None:
    with closing(JavaClient(f"{HOST}:{tap.port}", java_driver)) as client:
        move(client)
    assert {key: tap.versions(key) for key in NEWEST} == NEWEST
    # Transactions of version 2 add a partition with its first records (KIP-890).
    assert tap.versions(ApiKey.ADD_PARTITIONS_TO_TXN).isdisjoint(ADD_PARTITIONS_OF_CLIENTS)
    for requests in tap.heard:
        keys = [key for key, _ in requests]
        assert keys.count(ApiKey.API_VERSIONS) == (1 if keys else 0), requests
        assert keys[:1] in ([], [ApiKey.API_VERSIONS])


def move(client: AdminClient) -> None:
    """Move two records and their offset to another topic."""
    client.create_topic("in")
    client.create_topic("out")
    with closing(client.producer()) as producer:
        producer.send("in", [Record(b"a"), Record(b"b")])
    with closing(client.transactional("mover")) as transaction:
        transaction.begin()
        transaction.send("out", [Record(b"a"), Record(b"b")])
        transaction.send_offsets("movers", "in", {0: 2})
        transaction.commit()
    with closing(client.consumer("out", BEGINNING, isolation="read_committed")) as consumer:
        assert [record.value for record in consumer.take(2)] == [b"a", b"b"]
    assert client.committed("movers", "in", 0) == 2
