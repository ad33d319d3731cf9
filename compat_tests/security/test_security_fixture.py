"""`ottla.testing` with users, rights and certificates where brokers are processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from confluent_kafka import KafkaError

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import HOST, free_port
from compat_tests.security.test_security import run_ottla
from ottla.client.client import Client
from ottla.client.security import from_properties
from ottla.testing import Broker, Cluster
from tests.testing.test_access import ACLS, USERS, connects, refusal

pytest_plugins = ["pytester"]

pytestmark = pytest.mark.security


def test_a_process_and_its_secrets() -> None:
    """They are in a file for its owner alone, and not in the list of processes."""
    with Broker(users=USERS, acls=ACLS, tls=True, process=True) as broker:
        assert connects(broker, broker.client_config("alice"))
        assert broker._process is not None
        assert broker._process._process is not None
        listed = Path(f"/proc/{broker._process._process.pid}/cmdline").read_bytes()
        assert b"jaas" not in listed
        assert b"PRIVATE" not in listed
        (file,) = broker._process._data_dir.glob("*.properties")
        assert file.stat().st_mode & 0o777 == 0o600
        broker.kill()
        broker.start()
        assert connects(broker, broker.client_config("bob"))


def test_a_cluster_whose_nodes_ask_each_other() -> None:
    with Cluster(2, users=USERS, acls=ACLS, tls=True) as cluster:
        cluster.create_topic("orders", 2)
        for node in cluster.node_ids:
            host, _, port = cluster.address(node).rpartition(":")
            known = from_properties(cluster.client_config("bob"))
            with Client([(host, int(port))], 10, security=known) as client:
                assert [topic.name for topic in client.metadata(None).topics] == ["orders"]
        assert refusal(cluster.client_config("alice"), "orders") is None
        assert refusal(cluster.client_config("bob"), "orders") == KafkaError.TOPIC_AUTHORIZATION_FAILED
        cluster.reset()
        assert connects(cluster, cluster.client_config("alice"))


class SecuredOttla(OttlaBroker):
    """`ottla serve --secure`, which writes how to connect."""

    def command(self) -> list[str]:
        return [*super().command(), "--secure"]


MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PASSWORD = 'won"d\\er'
SCRAM_TESTS = """
from confluent_kafka import Consumer, Producer


def test_records_and_a_group(ottla_broker):
    config = ottla_broker.client_config()
    producer = Producer(config)
    producer.produce("orders", b"tea")
    assert producer.flush(30) == 0
    assert [record.text for record in ottla_broker.wait_for("orders")] == ["tea"]

    consumer = Consumer({**config, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.poll(30).value() == b"tea"
    consumer.commit(asynchronous=False)
    consumer.close()
    assert ottla_broker.wait_for_group("readers", lag=0).state == "Empty"


def test_what_was_left_is_gone(ottla_broker):
    assert ottla_broker.topics() == {}
    assert ottla_broker.groups() == {}


def test_a_fault(ottla_broker):
    ottla_broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
"""


def run_scram_tests(pytester: pytest.Pytester, address: str, config: Path) -> None:
    pytester.makepyfile(SCRAM_TESTS)
    options = ("--ottla-bootstrap", address, "--ottla-command-config", config, "-rs", "-p", "no:xdist")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=2, skipped=1)


@pytest.mark.java
def test_the_same_tests_with_an_apache_kafka_that_asks_for_a_login(pytester: pytest.Pytester) -> None:
    """The user is added at a listener that asks nobody; the tests connect to one that does."""
    plain, scram, controller = (f"{HOST}:{free_port()}" for _ in range(3))
    overrides = {
        "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{scram},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{scram}",
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{f"listener.name.sasl_plaintext.{name.lower()}.sasl.jaas.config": JAAS for name in MECHANISMS},
    }
    with ApacheKafka(pytester.path / "kafka", int(plain.rpartition(":")[2]), overrides=overrides):
        run_ottla("user", "add", "ann", "-b", plain, typed=PASSWORD + "\n")
        for mechanism in MECHANISMS:
            config = pytester.path / "client.properties"
            config.write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.username=ann\n"
                + "sasl.password="
                + PASSWORD.replace("\\", 2 * "\\")
            )
            run_scram_tests(pytester, scram, config)


def test_the_same_tests_with_ottla_serve_secure(pytester: pytest.Pytester) -> None:
    with SecuredOttla(pytester.path / "ottla") as broker:
        run_scram_tests(pytester, broker.bootstrap, broker.folder / "data" / "security" / "client.properties")
