"""Records sent by the small client: where they go, and that a lost answer doubles none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.ottla_broker import OttlaBroker
from ottla.client.connection import BrokerConnection
from ottla.client.errors import ConnectionLostError
from ottla.kproto.messages.produce import ProduceRequest
from ottla.kproto.partitioner import partition_for_key
from ottla.kproto.records import Compression
from ottla.kproto.schema import Request
from ottla.pipeline.client import ClientSettings, Cluster, parse_bootstrap_servers
from ottla.pipeline.client.producer import OutgoingRecord, Producer
from ottla.pipeline.errors import TopicError


@pytest.fixture
def cluster(broker: OttlaBroker) -> Iterator[Cluster]:
    opened = Cluster(ClientSettings(parse_bootstrap_servers(broker.bootstrap)))
    yield opened
    opened.close()


def stored(client: Confluent, topic: str, count: int, partition: int = 0) -> list[Record]:
    consumer = client.consumer(topic, BEGINNING, partition=partition)
    taken = consumer.take(count)
    consumer.close()
    return taken


def test_keys_choose_partitions_as_in_other_clients(
    cluster: Cluster, client: Confluent, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    keys = [b"key-%d" % number for number in range(60)]
    records = [OutgoingRecord(key, b"v", (("h", None), ("g", b"1"))) for key in keys]
    assert Producer(cluster, topic).send_all(records) == 60
    for partition in range(3):
        expected = [key for key in keys if partition_for_key(key, 3) == partition]
        taken = stored(client, topic, len(expected), partition)
        assert [record.key for record in taken] == expected
        assert {record.headers for record in taken} == {(("h", None), ("g", b"1"))}


def test_a_given_partition_and_time_and_a_tombstone(
    cluster: Cluster, client: Confluent, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    Producer(cluster, topic).send_all([OutgoingRecord(b"k", None, timestamp_ms=1_700_000_000_000, partition=1)])
    (record,) = stored(client, topic, 1, 1)
    assert (record.key, record.value, record.timestamp_ms) == (b"k", None, 1_700_000_000_000)


def test_records_without_a_key_take_turns(cluster: Cluster, client: Confluent, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    Producer(cluster, topic).send_all(OutgoingRecord(None, b"%d" % number) for number in range(25_000))
    halves = [stored(client, topic, 12_500, partition) for partition in range(2)]
    assert [[int(record.value or b"") for record in half] for half in halves] == [
        list(range(0, 25_000, 2)),
        list(range(1, 25_000, 2)),
    ]


def test_a_lost_answer_doubles_nothing(
    cluster: Cluster, client: Confluent, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    producer = Producer(cluster, topic)
    call = BrokerConnection.call
    lost: list[Request] = []

    def lose_the_first_answer(connection: BrokerConnection, request: Request, **options: Any) -> Any:
        answer = call(connection, request, **options)
        if isinstance(request, ProduceRequest) and not lost:
            lost.append(request)
            raise ConnectionLostError("lost on the way")
        return answer

    monkeypatch.setattr(BrokerConnection, "call", lose_the_first_answer)
    producer.send_all(OutgoingRecord(None, b"%d" % number) for number in range(10))
    producer.send_all(OutgoingRecord(None, b"%d" % number) for number in range(10, 20))
    assert lost
    taken = stored(client, topic, 20)
    assert [int(record.value or b"") for record in taken] == list(range(20))
    assert [record.offset for record in taken] == list(range(20))


def test_batches_keep_to_what_the_topic_takes(
    cluster: Cluster, client: Confluent, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(**{"max.message.bytes": "20000"})
    sizes = sent_batches(monkeypatch)
    values = [b"%06d" % number * 200 for number in range(100)]
    producer = Producer(cluster, topic, Compression.NONE)
    assert producer.send_all(OutgoingRecord(None, value) for value in values) == 100
    assert [record.value for record in stored(client, topic, 100)] == values
    assert max(sizes) <= 20_000
    assert len(sizes) == 7

    with pytest.raises(TopicError, match=r"A record of 30,\d+ bytes is larger than .* raise the topic's max\.message"):
        producer.send_all([OutgoingRecord(None, bytes(30_000))])


def test_a_batch_that_is_too_large_goes_in_halves(
    cluster: Cluster, client: Confluent, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the limit falls under a producer, or may not be asked for."""
    topic = new_topic(**{"max.message.bytes": "20000"})
    sizes = sent_batches(monkeypatch)
    producer = Producer(cluster, topic, Compression.NONE, batch_bytes=100_000)
    values = [b"%06d" % number * 200 for number in range(100)]
    assert producer.send_all(OutgoingRecord(None, value) for value in values) == 100
    assert producer.send_all([OutgoingRecord(None, b"last")]) == 1
    taken = stored(client, topic, 101)
    assert [record.value for record in taken] == [*values, b"last"]
    assert [record.offset for record in taken] == list(range(101))
    assert 20_000 < max(sizes) <= 100_000


def sent_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all batches that are sent from now on, those that are refused too."""
    call = BrokerConnection.call
    sizes: list[int] = []

    def measure(connection: BrokerConnection, request: Request, **options: Any) -> Any:
        if isinstance(request, ProduceRequest):
            sizes.append(len(request.topic_data[0].partition_data[0].records or b""))
        return call(connection, request, **options)

    monkeypatch.setattr(BrokerConnection, "call", measure)
    return sizes


def test_what_is_not_there_is_named(cluster: Cluster, new_topic: Callable[..., str]) -> None:
    with pytest.raises(TopicError, match="There is no topic 'nowhere' at"):
        Producer(cluster, "nowhere")
    topic = new_topic()
    with pytest.raises(TopicError, match=f"There is no partition {topic}-7 to send"):
        Producer(cluster, topic).send_all([OutgoingRecord(None, b"", partition=7)])
