"""Numbered records of a tiered topic: written over every fault by a client's own retries, and read back."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

VALUE = b"v" * 4_000
DEADLINE_S = 180.0


class Numbers:
    """Writes records to each partition in turn; `acknowledged` are their values in the order of their offsets."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        settings = {"enable.idempotence": True, "message.timeout.ms": 300_000, "reconnect.backoff.max.ms": 100}
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all", **settings})
        self._topic = topic
        self._written = 0
        self.acknowledged: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        self.refused: list[str] = []

    def write(self, count: int) -> None:
        """Without waiting for the answers."""
        for number in range(self._written, self._written + count):
            partition = number % len(self.acknowledged)
            while True:
                try:
                    self._producer.produce(
                        self._topic, b"%08d" % number + VALUE, partition=partition, on_delivery=self._told
                    )
                except BufferError:
                    self._producer.poll(0.05)
                else:
                    break
            self._producer.poll(0)
        self._written += count

    def wait(self, seconds: float = DEADLINE_S) -> int:
        """For the answers to all that was written; how many are missing."""
        return self._producer.flush(seconds)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error.str())
        else:
            self.acknowledged[message.partition() or 0].append(message.value() or b"")


def read_back(bootstrap: str, topic: str, partition: int, first: int, count: int) -> Iterable[bytes]:
    """So many records of a partition from an offset on; what a client asks for again by itself is no error."""
    config = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error"}
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, partition, first)])
        deadline = time.monotonic() + DEADLINE_S
        while count:
            assert time.monotonic() < deadline, f"{count} records of {topic}-{partition} are missing"
            for message in consumer.consume(min(count, 1000), timeout=0.2):
                error = message.error()
                if error is None:
                    count -= 1
                    yield message.value() or b""
                else:
                    assert error.code() in _PASSING, error


#: The object store's failures, lost connections, and a leader that is not there yet.
_PASSING = (
    KafkaError.UNKNOWN,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
