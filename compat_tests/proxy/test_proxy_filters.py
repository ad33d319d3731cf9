"""Each filter that comes with the proxy, by itself, under the clients that ask most of a broker.

What a filter is for is tested in tests/proxy/filters; here it must be in the way, and nothing may come out differently.
All of it takes minutes (`make test-proxy`).
"""

from __future__ import annotations

import base64
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import HOST, free_port
from compat_tests.brokers.proxied import ProxiedBroker, filter_toml
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.java_client import JavaClient, JavaDriver
from compat_tests.groups.group import Group
from compat_tests.scenarios.test_streams import word_count
from compat_tests.spark import session

pytestmark = [pytest.mark.proxy, pytest.mark.java]

PARTITIONS = 3
WORDS = 7
LAST = -1

# What clients have to live through: they try again, and nothing is lost or doubled.
FAULTS = [
    {"api": "Produce", "error": "NOT_ENOUGH_REPLICAS", "share": 0.2},
    {"api": "Produce", "lose-answer": True, "share": 0.05},
    {"api": "Fetch", "delay-ms": 20, "jitter-ms": 50, "share": 0.2},
    {"api": "Fetch", "drop": True, "share": 0.02},
    {"api": "AddPartitionsToTxn", "error": "COORDINATOR_LOAD_IN_PROGRESS", "share": 0.2},
    {"api": "EndTxn", "lose-answer": True, "share": 0.1},
    {"api": "ConsumerGroupHeartbeat", "error": "COORDINATOR_NOT_AVAILABLE", "share": 0.1},
    {"api": "ListOffsets", "delay-ms": 50, "share": 0.2},
]


def options(name: str, folder: Path) -> Mapping[str, object]:
    """The filter's table in the proxy's TOML: what the scenarios do passes it."""
    match name:
        case "tenants":
            return {"prefix": "tenant-1."}
        case "validation":
            schema = folder / "schema.json"
            schema.write_text('{"type": "integer"}')
            return {"topics": "in|out|numbers-.*", "json-schema": str(schema)}
        case "encryption":
            keys = folder / "keys.toml"
            keys.write_text(f'current = "k"\n[keys]\nk = "{base64.b64encode(bytes(32)).decode()}"\n')
            keys.chmod(0o600)
            return {"keys": {"file": str(keys)}}
        case "faults":
            return {"seed": 1, "rules": FAULTS}
        case "limits":
            return {"max-record-bytes": 1_000, "max-partitions": 100, "refused-apis": ["DeleteRecords"]}
        case "audit":
            return {"file": str(folder / "audit.jsonl")}
        case _:
            assert name == "recorder"
            return {"file": str(folder / "recording")}


class Filtered(ProxiedBroker):
    """Ottla behind a proxy with one filter."""

    name, behind, behind_name = OttlaBroker.name, OttlaBroker, "ottla"

    def __init__(self, folder: Path, filter_name: str) -> None:
        super().__init__(folder)
        self._filter_name = filter_name
        self._http_port = free_port()

    def flags(self, folder: Path) -> list[str]:
        return ["--http", f"{HOST}:{self._http_port}"]

    def filters(self, folder: Path) -> str:
        return filter_toml({"type": self._filter_name, **options(self._filter_name, folder)})

    def shown(self) -> int:
        """How many messages the filter was shown, by the proxy's own count."""
        with urllib.request.urlopen(f"http://{HOST}:{self._http_port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        counts = [line.split()[-1] for line in lines if line.startswith("ottla_proxy_filter_calls_total{")]
        return sum(map(int, counts))


@pytest.fixture(scope="module", params=["tenants", "validation", "encryption", "faults", "limits", "audit", "recorder"])
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filtered]:
    with Filtered(tmp_path_factory.mktemp(request.param), request.param) as process:
        yield process


@pytest.fixture
def broker(proxied: Filtered) -> Iterator[Filtered]:
    """The broker; after the scenario its filter must have seen something of it."""
    before = proxied.shown()
    yield proxied
    assert proxied.shown() > before


def send(client: Confluent, topic: str, numbers: range, partitions: int) -> list[str]:
    with closing(client.producer(idempotent=True)) as producer:
        producer.send(topic, [Record(b"%d" % n, partition=n % partitions) for n in numbers])
    return [str(n) for n in numbers]


def test_transactions_of_javas_producer(broker: Filtered, java_driver: JavaDriver) -> None:
    client, topic = JavaClient(broker.bootstrap, java_driver), "numbers-transactions"
    client.create_topic(topic, partitions=PARTITIONS)
    with closing(client.transactional("writer")) as producer:
        for first, end in ((0, producer.commit), (100, producer.abort), (200, producer.commit)):
            producer.begin()
            for partition in range(PARTITIONS):
                numbers = range(first, first + 50)
                producer.send(topic, [Record(b"%d" % n, key=b"k", partition=partition) for n in numbers])
            producer.send_offsets("readers", topic, {0: first + 1})
            end()
    with closing(client.producer(idempotent=True)) as producer:
        producer.send(topic, [Record(b"%d" % LAST, partition=partition) for partition in range(PARTITIONS)])
    committed = [*range(50), *range(200, 250), LAST]
    everything = [*range(50), *range(100, 150), *range(200, 250), LAST]
    for partition in range(PARTITIONS):
        for isolation, expected in (("read_committed", committed), ("read_uncommitted", everything)):
            with closing(client.consumer(topic, BEGINNING, partition=partition, isolation=isolation)) as consumer:
                assert [int(record.value or b"") for record in consumer.take(len(expected))] == expected
    assert client.committed("readers", topic, 0) == 201


def test_streams_counts_each_word_once(broker: Filtered, tmp_path: Path) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic("in", partitions=2)
    client.create_topic("out")
    out = client.consumer("out", BEGINNING, isolation="read_committed")
    with closing(out), word_count(broker.bootstrap, tmp_path / "state"):
        seen: list[Record] = []
        with closing(client.producer(idempotent=True)) as producer:
            for first in range(0, 300, 100):
                words = range(first, first + 100)
                producer.send("in", [Record(b"%d" % (n % WORDS), partition=n % 2) for n in words])
                seen += out.take(100)
        seen += out.take(1, 1.0)
    counts = defaultdict(list)
    for record in seen:
        counts[int(record.key or b"")].append(int(record.value or b""))
    assert counts == {word: list(range(1, len(range(word, 300, WORDS)) + 1)) for word in range(WORDS)}


def test_a_group_of_the_consumer_protocol(broker: Filtered) -> None:
    client, topic = Confluent(broker.bootstrap), "numbers-group"
    client.create_topic(topic, partitions=PARTITIONS)
    with closing(Group(broker.bootstrap, "group", "java")) as group:
        first, second = (group.join(topic, "--protocol", "consumer") for _ in range(2))
        group.await_balance([first, second], [(topic, PARTITIONS)])
        group.await_values(send(client, topic, range(300), PARTITIONS))
        second.leave()
        group.await_balance([first], [(topic, PARTITIONS)])
        group.await_values(send(client, topic, range(300, 600), PARTITIONS))
        first.leave()
    ends = [client.committed("group", topic, partition) for partition in range(PARTITIONS)]
    assert ends == [600 // PARTITIONS] * PARTITIONS


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_sparks_connector_writes_and_reads(broker: Filtered, tmp_path: Path) -> None:
    if reason := session.missing():
        pytest.skip(reason)
    from compat_tests.spark.topics import Topics, drain, numbers

    Confluent(broker.bootstrap).create_topic("numbers-spark", partitions=PARTITIONS)
    spark = session.shared()
    topics = Topics(spark, broker.bootstrap)
    topics.write(spark.range(1_000).selectExpr("string(id) as key", "string(id) as value"), "numbers-spark")
    assert numbers(topics.batch("numbers-spark")) == list(range(1_000))
    assert numbers(drain(topics.stream("numbers-spark"), tmp_path / "table")) == list(range(1_000))
