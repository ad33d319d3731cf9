"""The blocking client against a running broker, and against what is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from ottla.kproto.records import iter_batches, iter_records
from ottla.pipeline.client import (
    EARLIEST,
    LATEST,
    ClientSettings,
    Cluster,
    OffsetOutOfRangeError,
    PartitionFetcher,
    TopicPartition,
    parse_bootstrap_servers,
)
from ottla.pipeline.errors import BrokerUnavailableError, OptionError, TopicError

NewTopic = Callable[..., str]


def settings(bootstrap: str, **changes: Any) -> ClientSettings:
    return ClientSettings(parse_bootstrap_servers(bootstrap), **changes)


@pytest.fixture
def cluster(broker: OttlaBroker) -> Iterator[Cluster]:
    found = Cluster(settings(broker.bootstrap))
    yield found
    found.close()


def fetch_values(cluster: Cluster, part: TopicPartition, start: int, end: int) -> list[bytes | None]:
    return [
        record.value
        for fetched in PartitionFetcher(cluster, part).fetch(start, end)
        for pos, header in iter_batches(fetched.records)
        for record in iter_records(fetched.records, pos, header)
    ]


def test_finds_topics_partitions_and_offsets(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3, records=5)
    parts = [TopicPartition(topic, number) for number in range(3)]

    assert topic in cluster.topic_names()
    assert cluster.partitions([topic, "no-such-topic"]) == {topic: [0, 1, 2]}
    assert cluster.offsets(dict.fromkeys(parts, EARLIEST)) == dict.fromkeys(parts, 0)
    assert cluster.offsets(dict.fromkeys(parts, LATEST)) == dict.fromkeys(parts, 5)
    assert cluster.offsets({parts[0]: 1_700_000_002_500, parts[1]: 1_800_000_000_000}) == {parts[0]: 3, parts[1]: -1}


def test_fetches_in_several_answers(broker: OttlaBroker, client: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic()
    values = [bytes([65 + number]) * 1000 for number in range(20)]
    for value in values:
        producer = client.producer()
        producer.send(topic, [Record(value)])
        producer.close()
    small = Cluster(settings(broker.bootstrap, max_partition_fetch_bytes=3000))

    assert fetch_values(small, TopicPartition(topic, 0), 0, 20) == values


def test_an_offset_outside_the_log_is_told(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(records=3)

    with pytest.raises(OffsetOutOfRangeError):
        fetch_values(cluster, TopicPartition(topic, 0), 100, 101)


def test_an_unknown_partition_is_a_sentence(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()

    with pytest.raises(TopicError, match=f"no partition {topic}-7"):
        cluster.offsets({TopicPartition(topic, 7): LATEST})


def test_goes_on_after_the_broker_was_killed(own_broker: OttlaBroker) -> None:
    client = Confluent(own_broker.bootstrap)
    client.create_topic("topic")
    producer = client.producer()
    producer.send("topic", [Record(b"%d" % number) for number in range(10)])
    producer.close()
    cluster = Cluster(settings(own_broker.bootstrap))
    part = TopicPartition("topic", 0)
    fetching = PartitionFetcher(cluster, part).fetch(0, 11)

    first = next(fetching)
    own_broker.kill()
    own_broker.start()
    late = client.producer()
    late.send("topic", [Record(b"late")])
    late.close()
    rest = [fetched for fetched in fetching if fetched.records]

    assert first.next_offset == 10
    assert [fetched.next_offset for fetched in rest] == [11]
    cluster.close()


def test_an_unreachable_broker_is_a_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        cluster = Cluster(settings(f"127.0.0.1:{port}", default_api_timeout_ms=200))

        with pytest.raises(
            BrokerUnavailableError, match=rf"127.0.0.1:{port} .*refused.* Check kafka.bootstrap.servers"
        ):
            cluster.topic_names()


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that gives everybody the same answer; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0\0\0\4\0\0\0\7"])
def test_what_is_no_broker_is_a_sentence(answer: bytes) -> None:
    with answering(answer) as port:
        cluster = Cluster(settings(f"127.0.0.1:{port}", default_api_timeout_ms=100))

        with pytest.raises(BrokerUnavailableError, match=r"Check kafka\.bootstrap\.servers"):
            cluster.topic_names()


@pytest.mark.parametrize("text", ["", "host", "host:", ":9092", "host:port", "host:99999", "a:1;b:2"])
def test_malformed_servers_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="write host:port"):
        parse_bootstrap_servers(text)


def test_reads_several_servers() -> None:
    assert parse_bootstrap_servers("a:1, [::1]:2,") == (("a", 1), ("::1", 2))
