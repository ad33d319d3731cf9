"""kafka-python, with the names of its own API."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import BrokerResponseError, KafkaError

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

ACKS: Mapping[str, int | str] = {"0": 0, "1": 1, "all": "all"}


@contextmanager
def broker_errors() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise BrokerError(error.errno, str(error)) from error


@contextmanager
def kafka_errors() -> Iterator[None]:
    """Transactions tell of a broker's error by exceptions of the client's own, too."""
    try:
        yield
    except KafkaError as error:
        raise BrokerError(getattr(error, "errno", -1), repr(error)) from error


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, *, codec: str, acks: str, idempotent: bool) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=ACKS[acks],
            enable_idempotence=idempotent,
            batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            max_request_size=MAX_REQUEST_BYTES,
        )

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        with broker_errors():
            futures = [
                self._producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            self._producer.flush(ANSWER_TIMEOUT_S)
            return [future.get(ANSWER_TIMEOUT_S).offset for future in futures]

    def close(self) -> None:
        self._producer.close(ANSWER_TIMEOUT_S)


class KafkaPythonTransactions:
    """Implements TransactionalProducer."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=LINGER_MS,
        )
        with kafka_errors():
            self._producer.init_transactions()

    def begin(self) -> None:
        with kafka_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, records: Sequence[Record]) -> None:
        with kafka_errors():
            futures = [
                self._producer.send(topic, value=record.value, key=record.key, partition=record.partition)
                for record in records
            ]
            self._producer.flush(ANSWER_TIMEOUT_S)
            for future in futures:
                future.get(ANSWER_TIMEOUT_S)

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        named = {TopicPartition(topic, number): OffsetAndMetadata(at, "", -1) for number, at in offsets.items()}
        with kafka_errors():
            self._producer.send_offsets_to_transaction(named, group)

    def commit(self) -> None:
        with kafka_errors():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with kafka_errors():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(ANSWER_TIMEOUT_S)


class KafkaPythonConsumer:
    def __init__(self, bootstrap: str, topic: str, start: Start, partition: int, reset: str, isolation: str) -> None:
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset=reset, isolation_level=isolation)
        self._ready: list[Record] = []
        self._assigned = TopicPartition(topic, partition)
        self._consumer.assign([self._assigned])
        self._seek(self._assigned, start)
        self._consumer.position(self._assigned)

    def _seek(self, partition: TopicPartition, start: Start) -> None:
        if start.kind == "beginning":
            self._consumer.seek_to_beginning(partition)
        elif start.kind == "end":
            self._consumer.seek_to_end(partition)
        elif start.kind == "offset":
            self._consumer.seek(partition, start.at)
        elif found := self._consumer.offsets_for_times({partition: start.at})[partition]:
            self._consumer.seek(partition, found.offset)
        else:
            self._consumer.seek_to_end(partition)

    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        with broker_errors():
            while len(self._ready) < count and (left_s := deadline - time.monotonic()) > 0:
                for polled in self._consumer.poll(timeout_ms=int(left_s * 1000) + 1).values():
                    self._ready += [received(record) for record in polled]
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def await_end(self) -> None:
        (end,) = self._consumer.end_offsets([self._assigned]).values()
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while self._consumer.position(self._assigned) != end:
            assert time.monotonic() < deadline, "the end of the partition was not reached"
            for polled in self._consumer.poll(timeout_ms=50).values():
                self._ready += [received(record) for record in polled]

    def close(self) -> None:
        self._consumer.close()


def received(record: Any) -> Record:
    """A ConsumerRecord of kafka-python or aiokafka, whose attributes are the same."""
    return Record(
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        partition=record.partition,
        offset=record.offset,
        log_append_time=record.timestamp_type == 1,
    )


class KafkaPython:
    name = "kafka-python"
    lacks = frozenset({Feature.NULL_HEADER})

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def producer(self, *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> KafkaPythonProducer:
        return KafkaPythonProducer(self._bootstrap, codec=codec, acks=acks, idempotent=idempotent)

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> KafkaPythonTransactions:
        return KafkaPythonTransactions(self._bootstrap, transactional_id, timeout_ms)

    def consumer(
        self,
        topic: str,
        start: Start,
        *,
        partition: int = 0,
        reset: str = "earliest",
        isolation: str = "read_uncommitted",
    ) -> KafkaPythonConsumer:
        return KafkaPythonConsumer(self._bootstrap, topic, start, partition, reset, isolation)

    @contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        with KafkaAdminClient(bootstrap_servers=self._bootstrap) as admin, broker_errors():
            yield admin

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        with self._admin() as admin:
            admin.create_topics({topic: wanted})

    def add_partitions(self, topic: str, total: int) -> None:
        with self._admin() as admin:
            admin.create_partitions({topic: total})

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    def topics(self) -> dict[str, int]:
        with self._admin() as admin:
            return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}

    @contextmanager
    def _group_member(self, group: str, assigned: TopicPartition) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, group_id=group, enable_auto_commit=False)
        try:
            consumer.assign([assigned])
            with broker_errors():
                yield consumer
        finally:
            consumer.close()

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        assigned = TopicPartition(topic, partition)
        with self._group_member(group, assigned) as consumer:
            consumer.commit({assigned: OffsetAndMetadata(offset, "", -1)})

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        assigned = TopicPartition(topic, partition)
        with self._group_member(group, assigned) as consumer:
            offset: int | None = consumer.committed(assigned)
            return offset

    def close(self) -> None:
        """Each producer and consumer is closed by who opened it."""
