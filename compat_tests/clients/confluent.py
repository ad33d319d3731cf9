"""confluent-kafka: librdkafka from Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from compat_tests.clients.base import (
    ANSWER_TIMEOUT_S,
    BATCH_BYTES,
    LINGER_MS,
    MAX_REQUEST_BYTES,
    BrokerError,
    Feature,
    Record,
    Start,
)


@contextmanager
def broker_errors() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise BrokerError(error.args[0].code(), error.args[0].str()) from error


class ConfluentProducer:
    def __init__(self, bootstrap: str, *, codec: str, acks: str, idempotent: bool) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "batch.size": BATCH_BYTES,
                "linger.ms": LINGER_MS,
                "message.max.bytes": MAX_REQUEST_BYTES,
                "batch.num.messages": 10_000,
            }
        )

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        reports: dict[int, tuple[KafkaError | None, Message]] = {}

        def report(index: int, error: KafkaError | None, message: Message) -> None:
            reports[index] = (error, message)

        for index, record in enumerate(records):
            self._producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp=record.timestamp_ms or 0,
                on_delivery=partial(report, index),
            )
        unsent = self._producer.flush(ANSWER_TIMEOUT_S)
        assert unsent == 0, f"{unsent} of {len(records)} records were not acknowledged in time"
        for error, _ in reports.values():
            if error is not None:
                raise BrokerError(error.code(), error.str())
        return [reports[index][1].offset() or 0 for index in range(len(records))]

    def close(self) -> None:
        self._producer.flush(ANSWER_TIMEOUT_S)


class ConfluentTransactions:
    """Implements TransactionalProducer. What librdkafka calls retriable is tried again, as its manual says."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": LINGER_MS,
                "reconnect.backoff.max.ms": 1000,
                # With "rebootstrap" librdkafka 2.x goes on to ask a broker that it has forgotten for a group's offsets.
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
        )
        self._try(self._producer.init_transactions)

    def _try(self, act: Callable[..., object], *arguments: object) -> None:
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        with broker_errors():
            while True:
                try:
                    act(*arguments, ANSWER_TIMEOUT_S)
                except KafkaException as error:
                    if not error.args[0].retriable() or time.monotonic() > deadline:
                        raise
                else:
                    return

    def begin(self) -> None:
        with broker_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, records: Sequence[Record]) -> None:
        failed: list[KafkaError] = []

        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)

        try:
            with broker_errors():
                for record in records:
                    self._producer.produce(
                        topic,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        timestamp=record.timestamp_ms or 0,
                        on_delivery=report,
                    )
                unsent = self._producer.flush(ANSWER_TIMEOUT_S)
        except SystemError as fatal:  # confluent-kafka raises a fatal error in the midst of another callback
            raise BrokerError(-1, repr(fatal.__cause__)) from fatal
        assert unsent == 0, f"{unsent} of {len(records)} records were not acknowledged in time"
        for error in failed:
            raise BrokerError(error.code(), error.str())

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            partitions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
            self._try(self._producer.send_offsets_to_transaction, partitions, consumer.consumer_group_metadata())
        finally:
            consumer.close()

    def commit(self) -> None:
        self._try(self._producer.commit_transaction)

    def abort(self) -> None:
        self._try(self._producer.abort_transaction)

    def close(self) -> None:
        """It ends when nothing refers to it."""


class ConfluentConsumer:
    def __init__(self, bootstrap: str, topic: str, start: Start, partition: int, reset: str, isolation: str) -> None:
        self._ready: list[Record] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": reset,
                "isolation.level": isolation,
                "reconnect.backoff.max.ms": 1000,
            }
        )
        with broker_errors():
            position = self._position(TopicPartition(topic, partition), start)
            self._consumer.assign([position])
            if position.offset == OFFSET_END:
                self.await_end()

    def _position(self, partition: TopicPartition, start: Start) -> TopicPartition:
        if start.kind == "timestamp":
            partition.offset = start.at
            (found,) = self._consumer.offsets_for_times([partition], ANSWER_TIMEOUT_S)
            return found
        partition.offset = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}.get(start.kind, start.at)
        return partition

    def await_end(self) -> None:
        """librdkafka looks the end up in the background, and tells when it stands there."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(1.0)
            if message is not None and (error := message.error()):
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
        raise TimeoutError("the end of the partition was not reached")

    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        with broker_errors():
            while len(self._ready) < count and (left_s := deadline - time.monotonic()) > 0:
                for message in self._consumer.consume(count - len(self._ready), min(left_s, 0.2)):
                    if (error := message.error()) is None:
                        self._ready.append(received(message))
                    elif not (error.code() == KafkaError._PARTITION_EOF or error.retriable() or lost(error)):
                        raise KafkaException(error)
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def close(self) -> None:
        self._consumer.close()


def lost(error: KafkaError) -> bool:
    """A broken connection: librdkafka says so, and connects again by itself."""
    return error.code() in {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


def received(message: Message) -> Record:
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or ()
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(headers),
        timestamp_ms=timestamp_ms,
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        log_append_time=kind == TIMESTAMP_LOG_APPEND_TIME,
    )


class Confluent:
    name = "confluent-kafka"
    lacks: frozenset[Feature] = frozenset()

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def producer(self, *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> ConfluentProducer:
        return ConfluentProducer(self._bootstrap, codec=codec, acks=acks, idempotent=idempotent)

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> ConfluentTransactions:
        return ConfluentTransactions(self._bootstrap, transactional_id, timeout_ms)

    def consumer(
        self,
        topic: str,
        start: Start,
        *,
        partition: int = 0,
        reset: str = "earliest",
        isolation: str = "read_uncommitted",
    ) -> ConfluentConsumer:
        return ConfluentConsumer(self._bootstrap, topic, start, partition, reset, isolation)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap})

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self._await_all(self._admin.create_topics([NewTopic(topic, partitions, 1, config=dict(configs or {}))]))

    def add_partitions(self, topic: str, total: int) -> None:
        self._await_all(self._admin.create_partitions([NewPartitions(topic, total)]))

    def delete_topic(self, topic: str) -> None:
        self._await_all(self._admin.delete_topics([topic]))

    def _await_all(self, futures: Mapping[str, Any]) -> None:
        with broker_errors():
            for future in futures.values():
                future.result(ANSWER_TIMEOUT_S)

    def topics(self) -> dict[str, int]:
        listed = self._admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    @contextmanager
    def _group_member(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "enable.auto.commit": False})
        try:
            with broker_errors():
                yield consumer
        finally:
            consumer.close()

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        with self._group_member(group) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        with self._group_member(group) as consumer:
            (found,) = consumer.committed([TopicPartition(topic, partition)], ANSWER_TIMEOUT_S)
            return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        """Each producer and consumer is closed by who opened it."""
