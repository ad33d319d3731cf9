"""A broker that is stopped or killed, and started again: open clients go on, and nothing acknowledged is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import BEGINNING, AdminClient, Feature, Record, contents
from compat_tests.clients.confluent import Confluent

Connect = Callable[[BrokerProcess, str], AdminClient]
Needs = Callable[..., None]

TOPIC = "survivor"


def numbered(first: int, count: int) -> list[Record]:
    return [Record(f"{n}".encode(), key=b"k") for n in range(first, first + count)]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_open_producers_and_consumers_go_on(
    own_broker: BrokerProcess, client_name: str, connect: Connect, end: str
) -> None:
    client = connect(own_broker, client_name)
    Confluent(own_broker.bootstrap).create_topic(TOPIC)
    with ExitStack() as opened:
        producer = opened.enter_context(closing(client.producer(idempotent=True)))
        consumer = opened.enter_context(closing(client.consumer(TOPIC, BEGINNING)))
        producer.send(TOPIC, numbered(0, 100))
        assert contents(consumer.take(100)) == contents(numbered(0, 100))

        getattr(own_broker, end)()
        own_broker.start()

        producer.send(TOPIC, numbered(100, 100))
        assert contents(consumer.take(100)) == contents(numbered(100, 100))

    with closing(client.consumer(TOPIC, BEGINNING)) as consumer:
        back = consumer.take(200)
    assert contents(back) == contents(numbered(0, 200))
    assert [record.offset for record in back] == list(range(200))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_topics_records_and_commits_outlive_the_process(
    own_broker: BrokerProcess, admin_name: str, connect: Connect, end: str
) -> None:
    client: AdminClient = connect(own_broker, admin_name)
    client.create_topic(TOPIC, partitions=3, configs={"max.message.bytes": "2000000"})
    with closing(client.producer()) as producer:
        sent = [Record(f"{n}".encode(), partition=n % 3) for n in range(300)]
        producer.send(TOPIC, sent)
    client.commit("survivors", TOPIC, 1, 17)
    before = client.topics()[TOPIC]

    for _ in range(2):
        getattr(own_broker, end)()
        own_broker.start()

    assert client.topics()[TOPIC] == before == 3
    # Asked first by a client that waits for the coordinator to load; aiokafka takes "loading" for "none".
    assert Confluent(own_broker.bootstrap).committed("survivors", TOPIC, 1) == 17
    assert client.committed("survivors", TOPIC, 1) == 17
    for partition in range(3):
        with closing(client.consumer(TOPIC, BEGINNING, partition=partition)) as consumer:
            expected = [record for record in sent if record.partition == partition]
            assert contents(consumer.take(100)) == contents(expected)
    with closing(client.producer()) as producer:
        assert producer.send(TOPIC, [Record(b"after", partition=2)]) == [100]


def test_a_send_begun_while_the_broker_is_down_ends_well(
    own_broker: BrokerProcess, admin_name: str, connect: Connect
) -> None:
    client = connect(own_broker, admin_name)
    Confluent(own_broker.bootstrap).create_topic(TOPIC)
    assert Feature.OPEN_PRODUCER not in client.lacks
    with closing(client.producer(idempotent=True)) as producer:
        producer.send(TOPIC, numbered(0, 1))
        own_broker.kill()
        with ThreadPoolExecutor(1) as background:
            started = background.submit(own_broker.start)
            producer.send(TOPIC, numbered(1, 50))
            started.result()

    with closing(client.consumer(TOPIC, BEGINNING)) as consumer:
        assert contents(consumer.take(51)) == contents(numbered(0, 51))


@pytest.mark.parametrize("name", ["java", "confluent-kafka"])
def test_a_consumer_finds_out_what_a_loss_of_power_took_back(
    own_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    """It has read acknowledged records that no disk had yet; the broker's new leader epoch tells it (KIP-320)."""
    client = connect(own_broker, name)
    Confluent(own_broker.bootstrap).create_topic(TOPIC)
    with closing(client.consumer(TOPIC, BEGINNING)) as consumer:
        with closing(client.producer()) as producer:
            for n in range(100):
                producer.send(TOPIC, [Record(b"old-%03d" % n)])
        assert len(consumer.take(100)) == 100

        own_broker.kill()
        cut_log(own_broker.folder, b"old-050")
        own_broker.start()

        new = [Record(b"new-%03d" % n) for n in range(100)]
        with closing(client.producer()) as producer:
            offsets = producer.send(TOPIC, new)
        assert offsets[0] == 50
        seen: set[bytes | None] = set()
        while not seen.issuperset(record.value for record in new):
            taken = consumer.take(1, 20)
            assert taken, f"{100 - len(seen)} records were never seen"
            seen.update(record.value for record in taken)


def cut_log(folder: Path, value: bytes) -> None:
    """Take away what follows from this record on, as if it had never been written to the disk."""
    (path,) = (
        path
        for path in folder.rglob("*")
        if path.suffix in (".data", ".log") and path.is_file() and value in path.read_bytes()
    )
    os.truncate(path, path.read_bytes().index(value))
    if path.suffix == ".log":
        for index in path.parent.glob("*index"):  # of Kafka's, which say more than the log holds
            index.unlink()
