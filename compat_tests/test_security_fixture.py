"""`ottla.testing` with users, rights and certificates where brokers are processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from confluent_kafka import KafkaError

from ottla.client.client import Client
from ottla.client.security import from_properties
from ottla.testing import Broker, Cluster
from tests.testing.test_access import ACLS, USERS, connects, refusal

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
