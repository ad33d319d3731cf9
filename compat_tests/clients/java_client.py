"""Kafka's own Java client, by way of the driver in compat_tests/java/Driver.java: one JVM for a whole test run."""

from __future__ import annotations

import itertools
import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from compat_tests.java import java_program

DRIVER = Path(__file__).resolve().parents[1] / "java" / "Driver.java"


class JavaDriver:
    """The JVM, and the ids of what is open in it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(java_program(DRIVER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ids = itertools.count(1)

    def ask(self, **request: Any) -> Any:
        """One request, one answer. Raises BrokerError for an error of Kafka's."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the Java driver ended with exit code {self._process.wait()} at {request}"
        answer = json.loads(line)
        if "error" in answer:
            raise BrokerError(answer["error"], answer["text"])
        return answer

    def close(self) -> None:
        self._process.communicate("")


class JavaProducer:
    def __init__(self, driver: JavaDriver, config: Mapping[str, str]) -> None:
        self._driver = driver
        self.id = next(driver.ids)
        driver.ask(op="open_producer", id=self.id, config=config)

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        encoded = [
            {
                "key": encode(record.key),
                "value": encode(record.value),
                "headers": [(name, encode(value)) for name, value in record.headers],
                "timestamp_ms": record.timestamp_ms,
                "partition": record.partition,
            }
            for record in records
        ]
        offsets: list[int] = self._driver.ask(op="send", id=self.id, topic=topic, records=encoded)["offsets"]
        return offsets

    def close(self) -> None:
        self._driver.ask(op="close", id=self.id)


class JavaTransactions:
    """Implements TransactionalProducer."""

    def __init__(self, driver: JavaDriver, config: Mapping[str, str]) -> None:
        self._producer = JavaProducer(driver, config)
        self._driver = driver
        self._ask("init_transactions")

    def _ask(self, op: str, **request: Any) -> None:
        self._driver.ask(op=op, id=self._producer.id, **request)

    def begin(self) -> None:
        self._ask("begin_transaction")

    def send(self, topic: str, records: Sequence[Record]) -> None:
        self._producer.send(topic, records)

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self._ask("send_offsets", group=group, topic=topic, offsets=offsets)

    def commit(self) -> None:
        self._ask("commit_transaction")

    def abort(self) -> None:
        self._ask("abort_transaction")

    def close(self) -> None:
        self._producer.close()


class JavaConsumer:
    def __init__(self, driver: JavaDriver, config: Mapping[str, str], topic: str, start: Start, partition: int) -> None:
        self._driver = driver
        self._id = next(driver.ids)
        where = {"topic": topic, "partition": partition, "kind": start.kind, "at": start.at}
        driver.ask(op="open_consumer", id=self._id, config=config, **where)

    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Record]:
        answer = self._driver.ask(op="take", id=self._id, count=count, timeout_ms=int(timeout_s * 1000))
        return [
            Record(
                value=decode(record["value"]),
                key=decode(record["key"]),
                headers=tuple((name, decode(value)) for name, value in record["headers"]),
                timestamp_ms=record["timestamp_ms"],
                partition=record["partition"],
                offset=record["offset"],
                log_append_time=record["log_append_time"],
            )
            for record in answer["records"]
        ]

    def await_end(self) -> None:
        self._driver.ask(op="await_end", id=self._id, timeout_ms=int(ANSWER_TIMEOUT_S * 1000))

    def close(self) -> None:
        self._driver.ask(op="close", id=self._id)


def encode(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def decode(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


class JavaClient:
    name = "java"
    lacks: frozenset[Feature] = frozenset()

    def __init__(self, bootstrap: str, driver: JavaDriver) -> None:
        self._driver = driver
        self._config = {"bootstrap.servers": bootstrap}

    def producer(self, *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> JavaProducer:
        config = {
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "batch.size": str(BATCH_BYTES),
            "linger.ms": str(LINGER_MS),
            "max.request.size": str(MAX_REQUEST_BYTES),
        }
        return JavaProducer(self._driver, self._config | config)

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> JavaTransactions:
        config = {"transactional.id": transactional_id, "transaction.timeout.ms": str(timeout_ms)}
        return JavaTransactions(self._driver, self._config | config)

    def consumer(
        self,
        topic: str,
        start: Start,
        *,
        partition: int = 0,
        reset: str = "earliest",
        isolation: str = "read_uncommitted",
    ) -> JavaConsumer:
        config = self._config | {"auto.offset.reset": reset, "isolation.level": isolation}
        return JavaConsumer(self._driver, config, topic, start, partition)

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self._administer("create_topic", topic=topic, partitions=partitions, configs=dict(configs or {}))

    def add_partitions(self, topic: str, total: int) -> None:
        self._administer("add_partitions", topic=topic, partitions=total)

    def delete_topic(self, topic: str) -> None:
        self._administer("delete_topic", topic=topic)

    def topics(self) -> dict[str, int]:
        topics: dict[str, int] = self._administer("topics")["topics"]
        return topics

    def _administer(self, op: str, **request: Any) -> Any:
        return self._driver.ask(op=op, config=self._config, **request)

    def _ask_group(self, op: str, group: str, topic: str, partition: int, **request: Any) -> Any:
        config = self._config | {"group.id": group, "enable.auto.commit": "false"}
        return self._driver.ask(op=op, config=config, topic=topic, partition=partition, **request)

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._ask_group("commit", group, topic, partition, offset=offset)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        offset: int | None = self._ask_group("committed", group, topic, partition)["offset"]
        return offset

    def close(self) -> None:
        """Each producer and consumer is closed by who opened it, the driver by the test run."""
