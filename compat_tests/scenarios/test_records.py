"""What is written is what is read: codecs, keys, headers, values, timestamps, sizes, order."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import (
    BEGINNING,
    CODECS,
    MESSAGE_TOO_LARGE,
    BrokerError,
    Client,
    Feature,
    Record,
    contents,
)

NewTopic = Callable[..., str]
Needs = Callable[..., None]

# A batch of one record without key or headers: 61 bytes of batch header and 11 around the value.
# Kafka's default for max.message.bytes is 1 MiB and 12 bytes.
LARGEST_VALUE_BYTES = 1_048_588 - 61 - 11


def send(client: Client, topic: str, records: list[Record], codec: str = "none", **options: object) -> list[int]:
    with closing(client.producer(codec=codec, **options)) as producer:  # type: ignore[arg-type]
        return producer.send(topic, records)


def read(client: Client, topic: str, count: int, partition: int = 0) -> list[Record]:
    with closing(client.consumer(topic, BEGINNING, partition=partition)) as consumer:
        return consumer.take(count)


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_every_client_wrote(
    client: Client, codec: str, topic: str, broker: BrokerProcess, connect: Callable[[BrokerProcess, str], Client]
) -> None:
    sent = [
        Record(f"value {n} ".encode() * 20, key=f"key-{n % 7}".encode(), headers=(("n", b"a"),)) for n in range(200)
    ]
    send(client, topic, sent, codec)

    for name in ("kafka-python", "aiokafka", "confluent-kafka", client.name):
        back = read(connect(broker, name), topic, len(sent))
        assert contents(back) == contents(sent), name
        assert [record.offset for record in back] == list(range(len(sent))), name


def test_keys_are_any_bytes_none_or_nothing(client: Client, topic: str, needs: Needs) -> None:
    needs(client, Feature.EMPTY_KEY)
    keys = [b"plain", b"", None, "schlüssel".encode()]
    if Feature.BINARY not in client.lacks:
        keys += [bytes(range(256)), b"\x00", b"\n\r\x1e\x1f"]
    sent = [Record(b"v", key=key) for key in keys]
    send(client, topic, sent)

    assert contents(read(client, topic, len(sent))) == contents(sent)


def test_values_are_any_bytes_empty_or_null(client: Client, topic: str) -> None:
    values: list[bytes | None] = [b"plain", b"", b"after the empty one"]
    if Feature.NULL_VALUE not in client.lacks:
        values.append(None)
    if Feature.BINARY not in client.lacks:
        values += [bytes(range(256)), b"\x00" * 1000]
    sent = [Record(value, key=b"k") for value in values]
    send(client, topic, sent)

    assert contents(read(client, topic, len(sent))) == contents(sent)


def test_headers_keep_order_repetition_and_null(client: Client, topic: str) -> None:
    sent = [
        Record(b"none"),
        Record(b"one", headers=(("trace", b"abc"),)),
        Record(b"twice", headers=(("a", b"1"), ("b", b"2"), ("a", b"3"))),
        Record(b"empty", headers=(("empty", b""),)),
        Record(b"many", headers=tuple((f"name-{n}", str(n).encode()) for n in range(100))),
    ]
    if Feature.NULL_HEADER not in client.lacks:
        sent.append(Record(b"null", headers=(("null", None), ("not", b"null"))))
    send(client, topic, sent)

    assert contents(read(client, topic, len(sent))) == contents(sent)


def test_timestamps_of_the_producer_are_kept(client: Client, topic: str, needs: Needs) -> None:
    needs(client, Feature.RECORD_TIME)
    # Neither ascending nor near now, and all in one batch.
    times = [1_600_000_000_000, 1, 1_700_000_000_123, 1_650_000_000_000]
    send(client, topic, [Record(b"v", timestamp_ms=time) for time in times])

    back = read(client, topic, len(times))
    assert [record.timestamp_ms for record in back] == times
    assert [record.log_append_time for record in back] == [False] * len(times)


def test_log_append_time_is_the_brokers(client: Client, new_topic: NewTopic, needs: Needs) -> None:
    needs(client, Feature.RECORD_TIME, Feature.TIMESTAMP_TYPE)
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    send(client, topic, [Record(b"v", timestamp_ms=1_600_000_000_000 + n) for n in range(3)])

    back = read(client, topic, 3)
    assert [record.log_append_time for record in back] == [True] * 3
    assert all((record.timestamp_ms or 0) > 1_700_000_000_000 for record in back)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("count", [1, 2, 100, 10_000])
def test_batches_of_one_to_ten_thousand_records(client: Client, topic: str, count: int, codec: str) -> None:
    sent = [Record(f"record {n}".encode(), key=f"{n}".encode()) for n in range(count)]
    offsets = send(client, topic, sent, codec)

    back = read(client, topic, count)
    assert contents(back) == contents(sent)
    assert [record.offset for record in back] == list(range(count))
    if Feature.OFFSETS not in client.lacks:
        assert offsets == list(range(count))


def test_a_batch_of_the_largest_size_is_taken_and_one_byte_more_refused(client: Client, topic: str) -> None:
    largest = Record(random.Random(1).randbytes(LARGEST_VALUE_BYTES).translate(bytes(range(32, 64)) * 8))
    assert largest.value is not None
    send(client, topic, [largest])
    with pytest.raises(BrokerError) as refusal:
        send(client, topic, [Record(largest.value + b"!")])
    send(client, topic, [Record(b"after the refusal")])

    assert refusal.value.code == MESSAGE_TOO_LARGE
    assert contents(read(client, topic, 2)) == contents([largest, Record(b"after the refusal")])


def test_a_topic_may_allow_larger_messages(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(**{"max.message.bytes": "3000000"})
    large = Record(b"x" * 2_500_000)
    send(client, topic, [large])

    assert contents(read(client, topic, 1)) == contents([large])


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(client: Client, topic: str, acks: str) -> None:
    sent = [Record(f"{n}".encode()) for n in range(100)]
    send(client, topic, sent, acks=acks)

    assert contents(read(client, topic, len(sent))) == contents(sent)


def test_an_idempotent_producer_writes_each_record_once(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    sent = [Record(f"{n}".encode(), partition=n % 3) for n in range(3000)]
    with closing(client.producer(idempotent=True)) as producer:
        for at in range(0, len(sent), 300):
            producer.send(topic, sent[at : at + 300])

    for partition in range(3):
        expected = [record for record in sent if record.partition == partition]
        back = read(client, topic, len(expected), partition)
        assert contents(back) == contents(expected)
        assert [record.offset for record in back] == list(range(len(expected)))


def test_partitions_keep_their_own_order_and_offsets(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=5)
    sent = [Record(f"{n}".encode(), partition=(n * 7) % 5) for n in range(500)]
    send(client, topic, sent)

    for partition in range(5):
        expected = [record for record in sent if record.partition == partition]
        back = read(client, topic, len(expected), partition)
        assert contents(back) == contents(expected)
        assert {record.partition for record in back} == {partition}
        assert [record.offset for record in back] == list(range(len(expected)))
