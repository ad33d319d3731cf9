"""Exactly once through a broker that is killed again and again.

A job consumes records, transforms them and produces the results, with its offsets, in transactions of confluent-kafka.
Meanwhile the broker is ended with kill -9 and started again on the same data folder, `--kills` times. Whenever a
transaction fails the job begins anew where the committed offsets say, as a new process would. In the end a reader of
what is committed must find each input's result exactly once, and in order for each key.

    make exactly-once        or        python -m compat_tests.endurance.exactly_once [--broker kafka] [--kills 3]

The exit code is 0 only if that holds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent

SOURCE, TARGET, GROUP = "source", "target", "copy"
PARTITIONS = 3
KEYS = 17
BATCH_RECORDS = 20
CALL_TIMEOUT_S = 15.0
JOB_TIMEOUT_S = 120.0
MAX_UPTIME_S = 1.0
"""A kill comes at most so long after the first transaction that the broker has ended since its start."""

Row = tuple[bytes, bytes]  # key, value


class CopyJob:
    """Copies the source, one transaction a batch, until it is told to stop."""

    def __init__(self, bootstrap: str, stopping: threading.Event) -> None:
        self._bootstrap = bootstrap
        self._stopping = stopping
        self.commits = 0
        self.fails = 0
        self.copied = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_until_it_fails()
            except KafkaException:
                self.fails += 1

    def _run_until_it_fails(self) -> None:
        with self._clients() as (consumer, producer):
            producer.init_transactions(CALL_TIMEOUT_S)
            while not self._stopping.is_set():
                messages = [message for message in consumer.consume(BATCH_RECORDS, 0.2) if message.error() is None]
                if messages:
                    self._copy(consumer, producer, messages)

    @contextmanager
    def _clients(self) -> Iterator[tuple[Consumer, Producer]]:
        common = {
            "bootstrap.servers": self._bootstrap,
            "reconnect.backoff.max.ms": 500,
            # With "rebootstrap" librdkafka 2.x goes on to ask a broker that it has forgotten.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        transactions = {"transactional.id": "copy", "transaction.timeout.ms": 20_000, "linger.ms": 1}
        reading = {
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        producer = Producer(common | transactions)
        consumer = Consumer(common | reading)
        try:
            # Assigned, not subscribed: a member that is gone would hold its partitions until its session ends.
            consumer.assign(consumer.committed([TopicPartition(SOURCE, n) for n in range(PARTITIONS)], CALL_TIMEOUT_S))
            yield consumer, producer
        finally:
            consumer.close()

    def _copy(self, consumer: Consumer, producer: Producer, messages: list[Message]) -> None:
        producer.begin_transaction()
        for message in messages:
            producer.produce(TARGET, transformed(message.value()), message.key(), message.partition() or 0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), CALL_TIMEOUT_S
        )
        producer.commit_transaction(CALL_TIMEOUT_S)
        self.commits += 1
        self.copied += len(messages)


def transformed(value: bytes | None) -> bytes:
    return b"copy of " + (value or b"")


def fill(client: Confluent, count: int) -> None:
    """Numbered records, keyed so that a key has one partition."""
    numbers = range(count)
    with closing(client.producer(idempotent=True)) as producer:
        producer.send(SOURCE, [Record(b"%d" % n, b"%d" % (n % KEYS), partition=n % KEYS % PARTITIONS) for n in numbers])


def rows(client: Confluent, topic: str, partition: int, count: int) -> list[Row]:
    """What a reader of what is committed finds, up to one more than expected."""
    with closing(client.consumer(topic, BEGINNING, partition=partition, isolation="read_committed")) as consumer:
        found = consumer.take(count)
        found += consumer.take(1, 1.0)
    return [(record.key or b"", record.value or b"") for record in found]


def run(broker: BrokerProcess, kills: int, records: int) -> list[str]:
    """The loop on a running broker; what was found to be wrong."""
    client = Confluent(broker.bootstrap)
    for topic in (SOURCE, TARGET):
        client.create_topic(topic, partitions=PARTITIONS)
    stopping = threading.Event()
    job = CopyJob(broker.bootstrap, stopping)
    fill(client, records)
    chance = random.Random(kills)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job.run)
        try:
            for kill in range(kills):
                before = job.commits
                await_true(lambda: job.commits > before)  # noqa: B023
                time.sleep(chance.uniform(0, MAX_UPTIME_S))
                broker.kill()
                broker.start()
                print(f"kill {kill + 1}: {job.commits} commits, {job.fails} failures", file=sys.stderr, flush=True)
            expected = [
                [(b"%d" % (n % KEYS), transformed(b"%d" % n)) for n in range(records) if n % KEYS % PARTITIONS == p]
                for p in range(PARTITIONS)
            ]
            ends = [len(rows) for rows in expected]
            await_true(lambda: all((client.committed(GROUP, SOURCE, p) or 0) >= end for p, end in enumerate(ends)))
        finally:
            stopping.set()
            running.result()
    faults = []
    for partition in range(PARTITIONS):
        found = rows(client, TARGET, partition, len(expected[partition]))
        if found != expected[partition]:
            faults.append(f"partition {partition}: {len(found)} records, expected {len(expected[partition])}")
            faults += [f"  first difference: {f} for {e}" for f, e in zip(found, expected[partition]) if f != e][:1]  # noqa: B905
    print(f"{records} records, {kills} kills, {job.commits} commits, {job.fails} failed transactions", file=sys.stderr)
    return faults


def await_true(holds: Callable[[], bool]) -> None:
    """Until it holds, or it takes too long: then what is missing will be found."""
    deadline = time.monotonic() + JOB_TIMEOUT_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--records", type=int, default=20_000)
    arguments = parser.parse_args()
    kind = OttlaBroker if arguments.broker == "ottla" else ApacheKafka
    with tempfile.TemporaryDirectory(prefix="exactly-once-") as folder, kind(Path(folder)) as broker:
        faults = run(broker, arguments.kills, arguments.records)
    print("\n".join(faults) or "the output equals the input")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
