"""Consumers with a `client.rack` read from the replica in it, and go on elsewhere when it is gone (KIP-392)."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.brokers.process import free_port
from compat_tests.clients.base import BEGINNING
from compat_tests.clients.java_client import JavaConsumer, JavaDriver
from ottla.testing import Cluster

pytestmark = pytest.mark.replicas

TOPIC = "near"
RECORDS = 50
TIMEOUT_S = 120.0


class Nodes:
    """Three nodes, each in the rack `rack-<id>`, and what they have sent to consumers."""

    def __init__(self, cluster: Cluster, http_ports: dict[int, int]) -> None:
        self.cluster = cluster
        self._http_ports = http_ports
        self._produced = 0

    def produce(self) -> None:
        """As many records as a consumer will take."""
        self.cluster.produce(TOPIC, *range(self._produced, self._produced + RECORDS))
        self._produced += RECORDS

    def sent(self) -> dict[int, int]:
        """The nodes that have sent records to consumers, with the bytes."""
        sent = {}
        for node_id in self.cluster.running:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_ports[node_id]}/metrics") as response:
                text = response.read().decode()
            found = re.search(rf'ottla_topic_bytes_out_total{{topic="{TOPIC}"}} (\d+)', text)
            if found is not None and int(found[1]):
                sent[node_id] = int(found[1])
        return sent


@pytest.fixture
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    if request.config.getoption("--broker") != "ottla":
        pytest.skip("it has nodes of its own")
    http_ports = {node_id: free_port() for node_id in (1, 2, 3)}
    own = {
        node_id: {"broker.rack": f"rack-{node_id}", "ottla.http.listen": f"127.0.0.1:{port}"}
        for node_id, port in http_ports.items()
    }
    config = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with Cluster(3, config=config, node_config=own) as cluster:
        cluster.create_topic(TOPIC)
        yield Nodes(cluster, http_ports)


class Librdkafka:
    def __init__(self, bootstrap: str, rack: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "client.rack": rack, "group.id": "unused", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def take(self) -> list[bytes | None]:
        taken: list[bytes | None] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(taken) < RECORDS and time.monotonic() < deadline:
            taken += [it.value() for it in self._consumer.consume(RECORDS - len(taken), 1.0) if it.error() is None]
        return taken

    def close(self) -> None:
        self._consumer.close()


class Java:
    def __init__(self, driver: JavaDriver, bootstrap: str, rack: str) -> None:
        config = {"bootstrap.servers": bootstrap, "client.rack": rack}
        self._consumer = JavaConsumer(driver, config, TOPIC, BEGINNING, 0)

    def take(self) -> list[bytes | None]:
        return [record.value for record in self._consumer.take(RECORDS, TIMEOUT_S)]

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("name", ["confluent-kafka", pytest.param("java", marks=pytest.mark.java)])
def test_a_consumer_reads_in_its_rack(nodes: Nodes, name: str, request: pytest.FixtureRequest) -> None:
    cluster = nodes.cluster
    nodes.produce()
    leader = cluster.leader(TOPIC)
    near = next(node_id for node_id in cluster.node_ids if node_id != leader)
    rack = f"rack-{near}"
    consumer: Librdkafka | Java
    if name == "java":
        consumer = Java(request.getfixturevalue("java_driver"), cluster.bootstrap, rack)
    else:
        consumer = Librdkafka(cluster.bootstrap, rack)
    try:
        assert consumer.take() == [b"%d" % number for number in range(RECORDS)]
        assert list(nodes.sent()) == [near]
        # When the node is gone the consumer goes on, and misses and doubles nothing.
        cluster.kill(near)
        nodes.produce()
        assert consumer.take() == [b"%d" % number for number in range(RECORDS, 2 * RECORDS)]
        assert near not in nodes.sent()
        assert nodes.sent()
    finally:
        consumer.close()
