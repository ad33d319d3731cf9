"""The class with testcontainers' face: what is written for that one works with it."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from ottla.testing import BrokerError, KafkaContainer


def test_as_a_context_manager() -> None:
    with KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft() as kafka:
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
        assert kafka.broker.records("t")[0].text == "x"
        host, port = kafka.get_container_host_ip(), kafka.get_exposed_port(9093)
        assert f"{host}:{port}" == kafka.get_bootstrap_server()


def test_started_and_stopped_by_hand() -> None:
    kafka = KafkaContainer(port=29092).with_cluster_id("MkU3OEVBNTcwNTJENDM2Qk").with_exposed_ports(29092)
    with pytest.raises(RuntimeError, match="was not started"):
        kafka.get_bootstrap_server()
    assert kafka.start(timeout=60) is kafka
    address = kafka.get_bootstrap_server()
    assert kafka.start().get_bootstrap_server() == address
    kafka.stop(force=True, delete_volume=True)
    kafka.stop()
    with pytest.raises(RuntimeError, match="was not started"):
        kafka.get_bootstrap_server()


def test_environment_variables_are_settings() -> None:
    kafka = KafkaContainer().with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false").with_env("CLUSTER_ID", "x")
    kafka.with_env("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9092").with_env("KAFKA_NODE_ID", 5)
    with kafka, pytest.raises(BrokerError, match=r"UNKNOWN_TOPIC_OR_PARTITION|there is no topic"):
        kafka.broker.produce("t", "x")


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(BrokerError, match=r"log\.retention\.mss"):
        KafkaContainer().with_env("KAFKA_LOG_RETENTION_MSS", 1).start()
