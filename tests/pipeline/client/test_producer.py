"""Records sent by the small client: where they go, how large batches are, and that a lost answer doubles none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from ottla.client.connection import BrokerConnection
from ottla.client.errors import ConnectionLostError
from ottla.client.offsets import TopicPartition
from ottla.kproto.messages.data.produce import ProduceRequest
from ottla.kproto.records import Compression
from ottla.kproto.schema import Request
from ottla.pipeline.client import ClientSettings, Cluster, parse_bootstrap_servers
from ottla.pipeline.client.producer import Producer
from ottla.pipeline.client.transactions import new_identity
from ottla.pipeline.encoder import Columns
from ottla.pipeline.errors import TopicError

NewProducer = Callable[..., Producer]


@pytest.fixture
def new_producer(broker: OttlaBroker) -> Iterator[NewProducer]:
    cluster = Cluster(ClientSettings(parse_bootstrap_servers(broker.bootstrap)))
    made: list[Producer] = []

    def make(compression: Compression = Compression.NONE, **options: Any) -> Producer:
        made.append(Producer(cluster, new_identity(cluster), compression, **options))
        return made[-1]

    yield make
    for producer in made:
        producer.close()
    cluster.close()


def columns(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> Columns:
    return Columns(pa.array(keys or [None] * len(values), pa.binary()), pa.array(values, pa.binary()))


def send(producer: Producer, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
    producer.append(TopicPartition(topic, partition), columns(values))


def stored(client: Confluent, topic: str, count: int, partition: int = 0) -> list[Record]:
    consumer = client.consumer(topic, BEGINNING, partition=partition)
    taken = consumer.take(count)
    consumer.close()
    return taken


@pytest.mark.parametrize("compression", Compression)
def test_keys_tombstones_and_partitions(
    new_producer: NewProducer, client: Confluent, new_topic: Callable[..., str], compression: Compression
) -> None:
    topic = new_topic(partitions=2)
    producer = new_producer(compression)
    producer.append(TopicPartition(topic, 1), columns([b"v", None], [b"k", b"gone"]))
    send(producer, topic, [b"w"])
    producer.flush()
    assert [(record.key, record.value) for record in stored(client, topic, 2, 1)] == [(b"k", b"v"), (b"gone", None)]
    assert [record.value for record in stored(client, topic, 1)] == [b"w"]


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_a_lost_answer_doubles_nothing(
    new_producer: NewProducer, client: Confluent, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a request whose answer is awaited alone, nor of one that the next batch was made beside."""
    topic = new_topic(partitions=2)
    producer = new_producer(batch_bytes=20_000)
    receive = BrokerConnection.receive
    lost: list[Any] = []

    def lose_some(connection: BrokerConnection) -> Any:
        answer = receive(connection)
        if type(answer).__name__ == "ProduceResponse" and len(lost) < 5:
            lost.append(answer)
            if len(lost) % 2:
                connection.close()
                raise ConnectionLostError("lost on the way")
        return answer

    monkeypatch.setattr(BrokerConnection, "receive", lose_some)
    for start in range(0, 60_000, 10_000):
        for partition in range(2):
            send(producer, topic, [value.zfill(60) for value in numbered(start, start + 10_000)], partition)
    producer.flush()
    assert len(lost) == 5
    for partition in range(2):
        taken = stored(client, topic, 60_000, partition)
        assert [int(record.value or b"") for record in taken] == list(range(60_000))
        assert taken[-1].offset == 59_999


def test_batches_keep_to_what_the_topic_takes(
    new_producer: NewProducer, client: Confluent, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(**{"max.message.bytes": "20000"})
    sizes = sent_batches(monkeypatch)
    values = [b"%06d" % number * 200 for number in range(100)]
    producer = new_producer()
    send(producer, topic, values)
    producer.flush()
    assert [record.value for record in stored(client, topic, 100)] == values
    assert max(sizes) <= 20_000
    assert len(sizes) == 7

    send(producer, topic, [bytes(30_000)])
    with pytest.raises(TopicError, match=r"A record of 30,\d+ bytes is larger than .* raise the topic's max\.message"):
        producer.flush()


def test_a_batch_that_is_too_large_goes_in_halves(
    new_producer: NewProducer, client: Confluent, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the limit falls under a producer, or may not be asked for."""
    topic = new_topic(**{"max.message.bytes": "20000"})
    sizes = sent_batches(monkeypatch)
    producer = new_producer(batch_bytes=100_000)
    values = [b"%06d" % number * 200 for number in range(100)]
    send(producer, topic, values)
    producer.flush()
    send(producer, topic, [b"last"])
    producer.flush()
    taken = stored(client, topic, 101)
    assert [record.value for record in taken] == [*values, b"last"]
    assert [record.offset for record in taken] == list(range(101))
    assert 20_000 < max(sizes) <= 100_000


def test_what_waits_is_bounded(
    new_producer: NewProducer, client: Confluent, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=4)
    sizes = sent_batches(monkeypatch)
    producer = new_producer(buffer_bytes=5_000)
    for number in range(40):
        send(producer, topic, [b"%0100d" % number], number % 4)
    assert sum(sizes) == 0  # up to a request's bytes
    for _ in range(400):
        send(producer, topic, [bytes(5_000)])
    assert sum(sizes) > 900_000
    assert max(sizes) < 11_000
    producer.flush()
    assert len(stored(client, topic, 410)) == 410


def sent_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all batches that are sent from now on, those that are refused too."""
    send = BrokerConnection.send
    sizes: list[int] = []

    def measure(connection: BrokerConnection, request: Request, **options: Any) -> Any:
        if isinstance(request, ProduceRequest):
            sizes.extend(len(part.records or b"") for topic in request.topic_data for part in topic.partition_data)
        return send(connection, request, **options)

    monkeypatch.setattr(BrokerConnection, "send", measure)
    return sizes


def test_what_is_not_there_is_named(new_producer: NewProducer, new_topic: Callable[..., str]) -> None:
    producer = new_producer()
    with pytest.raises(TopicError, match="There is no topic 'nowhere' at"):
        producer.partition_count("nowhere")
    topic = new_topic()
    with pytest.raises(TopicError, match=f"There is no partition {topic}-7 to send"):
        send(producer, topic, [b""], partition=7)
