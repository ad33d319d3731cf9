"""Retention of a topic to which nobody writes: what has expired goes, although no newer segment follows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.conftest import BROKERS

DEADLINE_S = 120.0
LARGEST_FILE_BYTES = 4_000_000
RECORDS = 10

# Both look often; Apache Kafka leaves files there for a minute otherwise.
QUICK = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "log.cleaner.backoff.ms": "300",
    "log.segment.delete.delay.ms": "100",
}
EXPIRING = {
    "by-time": {"retention.ms": "500"},
    "by-size": {"retention.ms": "-1", "retention.bytes": "0"},
}
LASTING = {
    "compacted": {"retention.ms": "500", "cleanup.policy": "compact"},
    "large-enough": {"retention.ms": "-1", "retention.bytes": "1"},
}


@pytest.fixture
def quick_broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BROKERS[broker_kind](tmp_path_factory.mktemp(f"{broker_kind}-quick"), overrides=QUICK) as process:
        yield process


def bounds(bootstrap: str, topics: list[str]) -> dict[str, tuple[int, int]]:
    """The earliest and the latest offset of each topic's first partition."""
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})) as consumer:
        return {topic: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=120) for topic in topics}


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_on_disk(broker: BrokerProcess, value: bytes) -> bool:
    for path in broker.folder.rglob("*"):
        try:
            if path.is_file() and path.stat().st_size < LARGEST_FILE_BYTES and value in path.read_bytes():
                return True
        except FileNotFoundError:
            continue
    return False


def test_what_has_expired_is_gone_though_nothing_follows_it(quick_broker: BrokerProcess) -> None:
    client = Confluent(quick_broker.bootstrap)
    topics = EXPIRING | LASTING
    for topic, configs in topics.items():
        client.create_topic(topic, configs=configs)
    with closing(client.producer()) as producer:
        for topic in topics:
            records = [Record(f"{topic}/{number}".encode(), key=b"%d" % number) for number in range(RECORDS)]
            assert producer.send(topic, records) == list(range(RECORDS))

    def have_expired() -> bool:
        return set(bounds(quick_broker.bootstrap, list(EXPIRING)).values()) == {(RECORDS, RECORDS)}

    until(have_expired)
    until(lambda: not any(is_on_disk(quick_broker, f"{topic}/".encode()) for topic in EXPIRING))
    assert set(bounds(quick_broker.bootstrap, list(LASTING)).values()) == {(0, RECORDS)}
    assert all(is_on_disk(quick_broker, f"{topic}/".encode()) for topic in LASTING)

    # Offsets go on, and consumers of the whole topic start here. A record of the future does not expire yet.
    later_ms = int(time.time() * 1000) + 1_800_000
    with closing(client.producer()) as producer:
        assert producer.send("by-time", [Record(b"after", timestamp_ms=later_ms)]) == [RECORDS]
    with closing(client.consumer("by-time", BEGINNING)) as consumer:
        (record,) = consumer.take(1)
    assert (record.offset, record.value) == (RECORDS, b"after")
