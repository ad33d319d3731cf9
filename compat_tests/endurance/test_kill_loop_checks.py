"""What the kill loops must tell apart: records that a broker has doubled, and those that librdkafka writes twice."""

from __future__ import annotations

import logging
import time

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from compat_tests.endurance.replicated_kill_loop import PARTITIONS, TOPIC, SkippedSequences, read_back
from ottla.testing import Broker

WAIT_S = 120.0


class Numbers:
    """An idempotent producer whose every record is a batch and a request of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.skipped = SkippedSequences()
        logger = logging.Logger("producer")
        logger.addHandler(self.skipped)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1,
             "retry.backoff.ms": 20, "retry.backoff.max.ms": 20, "debug": "eos",
             # Nothing is sent again before the test has made the broker refuse it.
             "reconnect.backoff.ms": 1000, "reconnect.backoff.max.ms": 1000},
            logger=logger,
        )  # fmt: skip
        self.sent = [0] * PARTITIONS
        self.acknowledged = [0] * PARTITIONS

    def send(self, partition: int, count: int = 1) -> None:
        for _ in range(count):
            value = b"%d" % self.sent[partition]
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._told)
            self.sent[partition] += 1

    def poll(self) -> None:
        self._producer.poll(0.01)

    def until_acknowledged(self, partition: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.acknowledged[partition] < self.sent[partition]:
            assert time.monotonic() < deadline, f"{self.acknowledged} of {self.sent} were acknowledged"
            self.poll()

    def _told(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition = message.partition()
        assert partition is not None
        self.acknowledged[partition] += 1


def test_what_librdkafka_writes_again_in_a_new_epoch_is_not_taken_for_doubled(
    request: pytest.FixtureRequest,
) -> None:
    """In one partition an acknowledgement is lost, and then too few replicas are in sync. In another a batch is refused
    for the same, and the batches that are under way behind it are not."""
    if request.config.getoption("--broker") != "ottla":
        pytest.skip("it needs a broker with faults")
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        numbers = Numbers(broker.bootstrap)
        for partition in (0, 1):
            numbers.send(partition)
            numbers.until_acknowledged(partition)
        lost = broker.faults.drop_connections("Produce", topic=TOPIC, partition=0, after_handling=True)
        numbers.send(0)
        while not lost.struck:
            numbers.poll()
        broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=TOPIC, partition=0, times=None)
        while not numbers.skipped.causes:  # again if the first batch was refused before the others were under way
            broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=TOPIC, partition=1)
            numbers.send(1, 4)
            numbers.until_acknowledged(1)
        broker.faults.clear()
        numbers.send(0)
        numbers.until_acknowledged(0)
        found = read_back(broker.bootstrap, numbers.sent)
    assert numbers.skipped.causes == {"NOT_ENOUGH_REPLICAS": 1}
    assert found == ([], 1)
