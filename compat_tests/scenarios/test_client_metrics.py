"""Metrics that clients push (KIP-714): what real clients push stands on `/metrics`, and the APIs byte by byte.

What is expected of the APIs is what Apache Kafka 4.3.1 answers (`--broker=both`), which needs a plugin for it.
"""

from __future__ import annotations

import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import HOST, BrokerProcess, free_port
from compat_tests.clients.base import Record
from compat_tests.java import compiled
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.telemetry.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.kproto.messages.telemetry.push_telemetry import PushTelemetryRequest

CLIENT_METRICS = 16
INTERVAL_MS = 300
RECEIVER = Path(__file__).resolve().parents[1] / "java" / "TelemetryReceiver.java"
NOBODY = uuid.UUID(int=0)


@pytest.fixture(scope="module")
def http_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def taking(broker_kind: str, http_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that takes what clients push."""
    folder = tmp_path_factory.mktemp("taking")
    process: BrokerProcess
    if broker_kind.startswith("kafka"):
        reporter = {"metric.reporters": "TelemetryReceiver"}
        process = ApacheKafka(folder, overrides=reporter, classes=compiled(RECEIVER))
    else:
        process = OttlaBroker(folder, overrides={"ottla.http.listen": f"{HOST}:{http_port}"})
    with process:
        yield process


@pytest.fixture
def wire(taking: BrokerProcess) -> Iterator[Wire]:
    with closing(Wire(taking.bootstrap)) as connection:
        connection.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1.0"), 4)
        yield connection


def subscribe(wire: Wire, name: str, **configs: str) -> None:
    changes = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=changes)
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0


def unsubscribe(wire: Wire, name: str) -> None:
    changes = [AlterableConfig(name=key, config_operation=1) for key in ("metrics", "interval.ms", "match")]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=changes)
    wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)


def ask(wire: Wire, client: uuid.UUID = NOBODY) -> Any:
    return wire.call(GetTelemetrySubscriptionsRequest(client_instance_id=client), 0)


def told_interval(wire: Wire, interval_ms: int) -> Any:
    """Asked as a new client until a change of the subscriptions has come to the broker."""
    deadline = time.monotonic() + 120
    while (told := ask(wire)).push_interval_ms != interval_ms:
        assert time.monotonic() < deadline
    return told


def push(wire: Wire, told: Any, **fields: Any) -> int:
    asked = {"client_instance_id": told.client_instance_id, "subscription_id": told.subscription_id, **fields}
    code: int = wire.call(PushTelemetryRequest(**asked), 0).error_code
    return code


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=120) as page:
        text: str = page.read().decode()
        return text


@pytest.mark.java
@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("confluent-kafka", 'metric="org.apache.kafka.producer.node.request.latency.max"'),
        ("java", 'metric="org.apache.kafka.producer.record.send.total"'),
    ],
)
def test_what_clients_push_stands_on_the_page(
    taking: BrokerProcess,
    wire: Wire,
    http_port: int,
    connect: Callable[[BrokerProcess, str], Any],
    name: str,
    counted: str,
) -> None:
    if taking.name == "kafka":
        pytest.skip("the page is Ottla's")
    subscribe(wire, "all", metrics="*", interval_ms=str(INTERVAL_MS))
    told_interval(wire, INTERVAL_MS)
    client = connect(taking, name)
    topic = f"pushed-{name}"
    client.create_topic(topic)
    deadline = time.monotonic() + 60
    with closing(client.producer()) as producer:
        producer.send(topic, [Record(b"x")] * 10)
        while True:
            lines = [line for line in scrape(http_port).splitlines() if counted in line]
            if lines and float(lines[0].rpartition(" ")[2]) > 0:
                break
            assert time.monotonic() < deadline, scrape(http_port)
            producer.send(topic, [Record(b"x")])
            time.sleep(INTERVAL_MS / 1000)
    assert lines[0].startswith(("ottla_client_gauge{", "ottla_client_counter_total{"))
    unsubscribe(wire, "all")
    told_interval(wire, 300_000)


@pytest.mark.java
def test_requests_as_kafka_answers_them(taking: BrokerProcess, wire: Wire) -> None:
    told = ask(wire)
    assert (told.error_code, told.push_interval_ms, told.requested_metrics) == (0, 300_000, [])
    assert list(told.accepted_compression_types) == [4, 3, 1, 2]
    assert (told.telemetry_max_bytes, told.delta_temporality) == (1_048_576, True)
    assert told.client_instance_id not in (NOBODY, uuid.UUID(int=1))
    again = ask(wire, told.client_instance_id)
    assert (again.error_code, again.client_instance_id, again.push_interval_ms) == (89, NOBODY, 0)

    assert push(wire, told, client_instance_id=NOBODY) == 42
    assert push(wire, told, client_instance_id=uuid.UUID(int=1)) == 42
    assert push(wire, told) == 0
    assert push(wire, told) == 89
    assert push(wire, told, terminating=True, subscription_id=told.subscription_id + 1) == 117
    assert push(wire, told, terminating=True) == 42

    other = ask(wire)
    assert push(wire, other, subscription_id=other.subscription_id ^ 1) == 117
    assert ask(wire, other.client_instance_id).error_code == 0
    compressed = ask(wire)
    assert push(wire, compressed, compression_type=5) == 76
    assert ask(wire, compressed.client_instance_id).error_code == 0
    large = ask(wire)
    assert push(wire, large, metrics=bytes(1_048_577)) == 118
    assert ask(wire, large.client_instance_id).error_code == 89
    for compression in range(1, 5):
        assert push(wire, ask(wire), metrics=b"\xff" * 9, compression_type=compression) == 87
    assert push(wire, ask(wire), metrics=b"\x0b") == 87


@pytest.mark.java
def test_subscriptions_as_kafka_joins_them(taking: BrokerProcess, wire: Wire) -> None:
    before = ask(wire)
    subscribe(wire, "a", metrics="org.a,org.b", interval_ms="2000")
    subscribe(wire, "b", metrics="org.c", interval_ms="1000", match="client_software_name=wire,client_id=w.re")
    subscribe(wire, "c", metrics="*", interval_ms="500", match="client_source_address=10[.].*")
    told = told_interval(wire, 1000)
    assert sorted(told.requested_metrics) == ["org.a", "org.b", "org.c"]
    assert push(wire, before) == 117
    subscribe(
        wire, "d", metrics="*", interval_ms="900", match="client_software_version=1[.]0,client_source_port=[0-9]+"
    )
    told = told_interval(wire, 900)
    assert told.requested_metrics == ["*"]
    for name in "abcd":
        unsubscribe(wire, name)
    assert told_interval(wire, 300_000).requested_metrics == []
