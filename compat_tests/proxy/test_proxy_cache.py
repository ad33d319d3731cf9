"""What the proxy's cache serves, compared with what the broker itself answers, to the byte."""

from __future__ import annotations

import random
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from compat_tests.brokers.process import HOST, BrokerProcess, free_port
from compat_tests.brokers.proxied import start_proxy
from compat_tests.wire.wire import WireConnection
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import iter_batches, whole_batches_size_bytes

TRANSACTIONS = 12
VERSIONS = (11, 18)


class Read(NamedTuple):
    """One answer: its whole batches, the offset behind them, and the aborted transactions among them."""

    records: bytes
    end: int
    aborted: list[tuple[int, int]]


class Reader:
    """Fetches from partition 0 of a topic by the address that Metadata names."""

    def __init__(self, port: int, topic: str, version: int) -> None:
        with closing(WireConnection((HOST, port))) as first:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            found = first.call(asked, 12)
        self.name, self.version = topic, version
        self.topic_id, [partition] = found.topics[0].topic_id, found.topics[0].partitions
        [broker] = [broker for broker in found.brokers if broker.node_id == partition.leader_id]
        self.leader_epoch = partition.leader_epoch if version > 11 else -1
        self._wire = WireConnection((broker.host, broker.port))
        self._wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)

    def close(self) -> None:
        self._wire.close()

    def fetch(self, offset: int, level: int = 0, max_bytes: int = 1 << 20) -> Any:
        partition = FetchPartition(
            partition=0, current_leader_epoch=self.leader_epoch, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        named: dict[str, Any] = {"topic": self.name} if self.version < 13 else {"topic_id": self.topic_id}
        topic = FetchTopic(partitions=[partition], **named)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=level, topics=[topic])
        return self._wire.call(request, self.version).responses[0].partitions[0]

    def read(self, offset: int, level: int, max_bytes: int) -> Read:
        data = self.fetch(offset, level, max_bytes)
        assert data.error_code == ErrorCode.NONE
        records = bytes(data.records or b"")
        records = records[: whole_batches_size_bytes(records)]
        end = offset
        for _, header in iter_batches(records):
            end = header.next_offset
        aborted = [(it.producer_id, it.first_offset) for it in data.aborted_transactions or [] if it.first_offset < end]
        return Read(records, end, aborted)

    def read_all(self, level: int, max_bytes: int = 20_000) -> bytes:
        found, offset = b"", 0
        while (part := self.read(offset, level, max_bytes)).records:
            found, offset = found + part.records, part.end
        return found


class Cached:
    """A proxy with a cache before a broker, which can be killed."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self._broker, self._folder = broker, folder
        self.port = 0
        self._http_port = free_port()
        self.start()

    def start(self) -> None:
        flags = ("--cache", "64MiB", "--cache-dir", str(self._folder), "--http", f"{HOST}:{self._http_port}")
        log = self._folder.with_suffix(".log")
        self._process, self.port = start_proxy(self._broker.bootstrap, log, self.port, *flags)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def counted(self, name: str) -> float:
        with urllib.request.urlopen(f"http://{HOST}:{self._http_port}/metrics", timeout=120) as answer:
            text = answer.read().decode()
        return sum(float(it) for it in re.findall(rf"^ottla_proxy_{name} (\S+)$", text, re.MULTILINE))


@pytest.fixture
def cached(broker: BrokerProcess, tmp_path: Path) -> Iterator[Cached]:
    folder = tmp_path / "cache"
    folder.mkdir()
    proxy = Cached(broker, folder)
    try:
        yield proxy
    finally:
        proxy.kill()
        assert list(folder.iterdir()) == []


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def create(admin: AdminClient, topic: str, **config: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)


def write(broker: BrokerProcess, topic: str, *, transactions: int = TRANSACTIONS) -> None:
    """Two producers at the same time, one with transactions of which every third is aborted; until all is written."""
    settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "batch.num.messages": 20, "log_level": 0}
    plain = Producer(settings)
    transactional = Producer({**settings, "transactional.id": f"{topic}-{time.monotonic_ns()}"})
    transactional.init_transactions(30)
    for number in range(transactions):
        transactional.begin_transaction()
        for count in range(50):
            transactional.produce(topic, f"{number}-{count} ".encode() * 9, partition=0)
            plain.produce(topic, f"plain {number}-{count} ".encode() * 7, partition=0)
        if number % 3:
            transactional.commit_transaction(30)
        else:
            transactional.abort_transaction(30)
    plain.flush(30)
    await_markers(broker.port, topic)


def await_markers(port: int, topic: str) -> None:
    """The end of a transaction is answered before its markers are written: the log grows by them a moment later."""
    with closing(Reader(port, topic, VERSIONS[-1])) as reader:

        def has_no_open_transaction() -> bool:
            data = reader.fetch(0, max_bytes=1)
            return bool(data.last_stable_offset == data.high_watermark)

        until(has_no_open_transaction)


@contextmanager
def both(broker: BrokerProcess, cached: Cached, topic: str, version: int) -> Iterator[tuple[Reader, Reader]]:
    with (
        closing(Reader(broker.port, topic, version)) as direct,
        closing(Reader(cached.port, topic, version)) as served,
    ):
        yield direct, served


def compare(broker: BrokerProcess, cached: Cached, topic: str, start: int = 0) -> None:
    """Read from anywhere in pieces of any size, in both isolation levels and by old and new versions."""
    rng = random.Random(7)
    for version in VERSIONS:
        with both(broker, cached, topic, version) as (direct, served):
            for level in (0, 1):
                whole = direct.read(start, level, 1 << 24)
                assert whole.end > start
                for _ in range(20):
                    offset = rng.randrange(start, whole.end)
                    found = served.read(offset, level, rng.choice((1, 500, 3_000, 40_000)))
                    expected = direct.read(offset, level, 1 << 24)
                    assert found.records
                    assert expected.records.startswith(found.records)
                    assert found.aborted == [it for it in expected.aborted if it[1] < found.end]


def test_it_serves_what_the_broker_answers(broker: BrokerProcess, cached: Cached, admin: AdminClient) -> None:
    topic = "cached-exactly"
    create(admin, topic)
    write(broker, topic)
    for level in (0, 1):
        for version in VERSIONS:
            with both(broker, cached, topic, version) as (direct, served):
                expected = direct.read_all(level)
                assert served.read_all(level) == expected
    read_once = cached.counted("cache_kept_bytes_total")
    assert 0 < read_once <= 2 * len(expected)  # once for each isolation level
    served_before = cached.counted("cache_served_bytes_total")
    assert served_before >= 2 * len(expected)
    compare(broker, cached, topic)
    write(broker, topic, transactions=3)
    compare(broker, cached, topic)
    assert cached.counted("cache_served_bytes_total") > served_before


def test_what_is_deleted_is_out_of_range(broker: BrokerProcess, cached: Cached, admin: AdminClient) -> None:
    topic = "cached-deleted"
    create(admin, topic)
    write(broker, topic, transactions=4)
    with both(broker, cached, topic, 16) as (direct, served):
        assert served.read_all(0) == direct.read_all(0)
        start = 150
        admin.delete_records([TopicPartition(topic, 0, start)])[TopicPartition(topic, 0, start)].result(30)
        until(lambda: served.fetch(0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE)
    compare(broker, cached, topic, start)


def test_a_topic_that_is_made_again(broker: BrokerProcess, cached: Cached, admin: AdminClient) -> None:
    topic = "cached-again"
    create(admin, topic)
    write(broker, topic, transactions=2)
    with both(broker, cached, topic, 16) as (direct, served), both(broker, cached, topic, 11) as (_, by_name):
        old = direct.read_all(0)
        assert served.read_all(0) == by_name.read_all(0) == old
        admin.delete_topics([topic])[topic].result(30)
        until(lambda: served.fetch(0).error_code == ErrorCode.UNKNOWN_TOPIC_ID)
        until(lambda: by_name.fetch(0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        until(lambda: is_made(admin, topic))
        write(broker, topic, transactions=2)
        until(lambda: by_name.fetch(0).error_code == ErrorCode.NONE)
        with closing(Reader(broker.port, topic, 16)) as anew:
            new = anew.read_all(0)
        assert new != old
        assert by_name.read_all(0) == new
        assert by_name.read_all(0) == new
    compare(broker, cached, topic)


def is_made(admin: AdminClient, topic: str) -> bool:
    """Kafka still has the name of a topic for a while when it was deleted."""
    try:
        create(admin, topic)
    except Exception:  # noqa: BLE001 - TOPIC_ALREADY_EXISTS, until it does not
        return False
    return True


def test_a_topic_that_becomes_compacted(broker: BrokerProcess, cached: Cached, admin: AdminClient) -> None:
    topic = "cached-compacted"
    create(admin, topic)
    write(broker, topic, transactions=2)
    with both(broker, cached, topic, 16) as (direct, served):
        for _ in range(2):
            assert served.read_all(0) == direct.read_all(0)
        assert cached.counted("cache_served_bytes_total") > 0
        entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

        def is_forwarded() -> bool:
            before = cached.counted("cache_served_bytes_total")
            assert served.read_all(0) == direct.read_all(0)
            return cached.counted("cache_served_bytes_total") == before

        until(is_forwarded)
        assert is_forwarded()


def test_a_proxy_that_was_killed_begins_with_nothing(
    broker: BrokerProcess, cached: Cached, admin: AdminClient
) -> None:  # fmt: skip
    topic = "cached-killed"
    create(admin, topic)
    write(broker, topic, transactions=4)
    with both(broker, cached, topic, 16) as (direct, served):
        assert served.read_all(1) == direct.read_all(1)
    cached.kill()
    cached.start()
    assert cached.counted("cache_bytes") == 0
    compare(broker, cached, topic)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what the proxy learns in a moment."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
