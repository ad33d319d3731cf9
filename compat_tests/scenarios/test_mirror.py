"""A cluster is mirrored under load, both sides are killed again and again, and everything is moved to the mirror.

The source is what `--broker` says, the mirror always Ottla. In the end every batch of every partition is compared to
the byte, and what each group has committed; then clients go on at the mirror.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess
from compat_tests.conftest import BROKERS
from compat_tests.wire.wire import Wire
from ottla.client.addresses import parse_addresses
from ottla.client.admin.group_state import Coordinator, committed_offsets
from ottla.client.client import Client
from ottla.client.offsets import TopicPartition as Place
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.records import CorruptRecordError, iter_batches

pytestmark = [pytest.mark.mirror, pytest.mark.timeout(1800)]

TOPICS = {"plain": 4, "transactions": 2, "compacted": 1}
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}
KILLS = 6
START_TIMEOUT_S = 180.0
"""A start after a kill, on a machine that is busy with the load."""
_FETCH_BY_NAME = 12
_COMMIT_BY_NAME = 8


class Load:
    """Threads that work on the source until they are stopped; what fails while it is down is tried again."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.done = threading.Event()
        self.failures: list[Exception] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        works = (self.produce, self.transact, lambda: self.consume("classic"), lambda: self.consume("consumer"))
        threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.done.set()
            for thread in threads:
                thread.join()
        assert not self.failures, self.failures

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - told by the test itself
            self.failures.append(error)

    def produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "compression.type": "lz4", **QUIET}
        )
        for number in itertools.count():
            if self.done.is_set():
                break
            producer.produce("plain", b"%d" % number, b"key-%d" % (number % 100), partition=number % 4)
            producer.produce("compacted", b"%d" % number, b"key-%d" % (number % 20))
            producer.poll(0.002)
        assert producer.flush(60) == 0

    def transact(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": "work", **QUIET}
        while not self.done.is_set():
            producer = Producer(settings)
            try:
                producer.init_transactions(60)
                for number in itertools.count():
                    if self.done.is_set():
                        return
                    producer.begin_transaction()
                    for partition in (0, 1):
                        producer.produce("transactions", b"%d" % number, partition=partition)
                    producer.flush(20)
                    if number % 3:
                        producer.commit_transaction(20)
                    else:
                        producer.abort_transaction(20)
            except KafkaException:
                time.sleep(0.1)  # the source is down, or was: begin anew with the same id

    def consume(self, protocol: str) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": f"{protocol}-group", "enable.auto.commit": False}
        consumer = Consumer({**settings, "group.protocol": protocol, "auto.offset.reset": "earliest", **QUIET})
        consumer.subscribe(["plain"])
        try:
            while not self.done.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    try:
                        consumer.commit(message=message, asynchronous=True)
                    except KafkaException:
                        continue
        finally:
            consumer.close()


def leave_open(bootstrap: str) -> Producer:
    """A transaction that nobody ends."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "left", "transaction.timeout.ms": 600_000, **QUIET}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("transactions", b"never committed", partition=1)
    producer.flush(20)
    return producer


def commit_as_nobody(bootstrap: str) -> None:
    """What a simple consumer does, which is in no group."""
    with Client(parse_addresses(bootstrap)) as client:
        partition = OffsetCommitRequestPartition(partition_index=2, committed_offset=7, committed_metadata="mine")
        topic = OffsetCommitRequestTopic(name="plain", partitions=[partition])
        request = OffsetCommitRequest(group_id="simple", topics=[topic])
        answer = Coordinator(client, 30).call(
            "simple", request, lambda answer: int(answer.topics[0].partitions[0].error_code), at_most=_COMMIT_BY_NAME
        )
        assert answer.topics[0].partitions[0].error_code == 0


def content(process: BrokerProcess, topic: str, partition: int) -> tuple[int, list[bytes]]:
    """Where a partition begins, and its batches, as any consumer gets them."""
    wire = Wire(process.bootstrap)
    offset, start, batches = 0, 0, list[bytes]()
    while True:
        asked = FetchTopic(
            topic=topic,
            partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)],
        )
        answer = wire.call(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[asked]), _FETCH_BY_NAME)
        (found,) = answer.responses[0].partitions
        assert found.error_code == 0, found
        start = found.log_start_offset
        data = bytes(found.records or b"")
        if not data:
            wire.close()
            assert offset == found.high_watermark
            return start, batches
        with suppress(CorruptRecordError):  # of Kafka the last one may be cut off
            for position, header in iter_batches(data):
                batches.append(data[position : position + header.size_bytes])
                offset = header.next_offset


def groups(process: BrokerProcess) -> dict[str, dict[Place, int]]:
    with Client(parse_addresses(process.bootstrap)) as client:
        names = ("classic-group", "consumer-group", "simple")
        return {name: committed_offsets(Coordinator(client, 30), name) for name in names}


def ottla(process: BrokerProcess, *arguments: str) -> str:
    program = str(Path(sys.executable).parent / "ottla")
    command = [program, *arguments, "--bootstrap", process.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{process.log_tail()}"
    return done.stdout


def committed_values(process: BrokerProcess, partition: int) -> list[bytes | None]:
    """What a read_committed consumer reads of the topic of transactions, to its end."""
    settings = {"bootstrap.servers": process.bootstrap, "group.id": "check", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True})
    consumer.assign([TopicPartition("transactions", partition, 0)])
    values = []
    for message in iter(lambda: consumer.poll(30), None):
        if message.error() is not None:
            break
        values.append(message.value())
    consumer.close()
    return values


def test_a_move_under_load_with_kills_on_both_sides(broker_kind: str, tmp_path: Path) -> None:
    dice = random.Random(4)
    mirror = OttlaBroker(tmp_path / "mirror", overrides={"ottla.mirror.interval.ms": "300"})
    source = BROKERS[broker_kind](tmp_path / "source")
    source.start_timeout_s = mirror.start_timeout_s = START_TIMEOUT_S
    with source, mirror:
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        new = [
            NewTopic(name, count, config={"cleanup.policy": "compact"} if name == "compacted" else {})
            for name, count in TOPICS.items()
        ]
        for made in admin.create_topics(new).values():
            made.result(30)
        load = Load(source.bootstrap)
        with load.running():
            ottla(mirror, "mirror", "start", "--from", source.bootstrap, "--timeout", "120")
            for kill in range(KILLS):
                time.sleep(dice.uniform(1, 3))
                victim = source if kill % 3 == 2 else mirror
                victim.kill()
                time.sleep(dice.uniform(0, 1))
                victim.start()
            time.sleep(3)
        open_producer = leave_open(source.bootstrap)
        commit_as_nobody(source.bootstrap)
        promoted = ottla(mirror, "mirror", "promote", "--wait", "200", "--timeout", "120")
        assert f"{len(TOPICS)} topics are writable here now" in promoted, promoted
        assert "transactions that were open in them are aborted" in promoted, promoted

        compared = 0
        for topic, count in TOPICS.items():
            for partition in range(count):
                (start, there), (begins, here) = content(source, topic, partition), content(mirror, topic, partition)
                assert begins == start
                assert here[: len(there)] == there, f"{topic}-{partition}"
                ended = here[len(there) :]
                assert len(ended) == (1 if (topic, partition) == ("transactions", 1) else 0), (topic, partition, ended)
                compared += len(there)
        print(f"compared {compared} batches, the same to the byte")
        assert groups(mirror) == groups(source)
        assert groups(mirror)["simple"] == {Place("plain", 2): 7}
        for partition in (0, 1):
            values = committed_values(mirror, partition)
            assert values == committed_values(source, partition)
            assert b"never committed" not in values
            assert len(values) > 10

        del open_producer
        producer = Producer({"bootstrap.servers": mirror.bootstrap, "transactional.id": "work"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("transactions", b"first of the mirror's own", partition=1)
        producer.commit_transaction(60)
        assert committed_values(mirror, 1)[-1] == b"first of the mirror's own"
