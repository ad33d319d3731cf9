"""Batch reads, planned and read without a Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from ottla.pipeline.errors import DataLossError, OptionError, TopicError
from ottla.pipeline.source.batch import BatchReader
from ottla.pipeline.source.options import parse_options
from ottla.pipeline.source.task import RangeTask

NewTopic = Callable[..., str]
Read = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def reader(broker: OttlaBroker) -> Callable[..., BatchReader]:
    """A reader with the connector's options; underscores stand for dots."""

    def make(**options: object) -> BatchReader:
        given = {name.replace("_", "."): str(value) for name, value in options.items()}
        given = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.default.api.timeout.ms": "5000"} | given
        return BatchReader(parse_options(given, is_stream=False))

    return make


@pytest.fixture
def read(reader: Callable[..., BatchReader]) -> Read:
    def run(**options: object) -> list[dict[str, Any]]:
        made = reader(**options)
        return [row for task in made.partitions() for batch in made.read(task) for row in batch.to_pylist()]

    return run


def values(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["value"]) for row in rows]


def test_reads_everything(read: Read, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2, records=5)

    rows = read(subscribe=topic)

    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (topic, partition, offset) for partition in range(2) for offset in range(5)
    ]
    assert values(rows) == [0, 1, 2, 3, 4] * 2
    assert rows[3]["timestamp"].timestamp() == 1_700_000_003
    assert {row["timestampType"] for row in rows} == {0}


def test_reads_keys_nulls_and_headers(read: Read, client: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = client.producer(codec="zstd")
    producer.send(
        topic, [Record(b"v", b"k", (("a", b"1"), ("a", None))), Record(None, b"gone"), Record(b"", b"", (("ü", b""),))]
    )
    producer.close()

    rows = read(subscribe=topic, includeHeaders="true")

    assert [(row["key"], row["value"]) for row in rows] == [(b"k", b"v"), (b"gone", None), (b"", b"")]
    assert [row["headers"] for row in rows] == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [{"key": "ü", "value": b""}],
    ]


def test_log_append_time_is_told(read: Read, new_topic: NewTopic) -> None:
    topic = new_topic(records=3, **{"message.timestamp.type": "LogAppendTime"})

    rows = read(subscribe=topic)

    assert {row["timestampType"] for row in rows} == {1}
    assert all(row["timestamp"].timestamp() > 1_750_000_000 for row in rows)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"T":{"0":7}}'}, [7, 8, 9]),
        ({"startingOffsets": '{"T":{"0":-2}}', "endingOffsets": '{"T":{"0":2}}'}, [0, 1]),
        ({"startingOffsets": '{"T":{"0":3}}', "endingOffsets": '{"T":{"0":3}}'}, []),
        ({"startingTimestamp": 1_700_000_008_000}, [8, 9]),
        ({"endingTimestamp": 1_700_000_001_500}, [0, 1]),
        ({"startingOffsetsByTimestamp": '{"T":{"0":1700000007500}}', "startingOffsets": "earliest"}, [8, 9]),
        ({"endingOffsetsByTimestamp": '{"T":{"0":1800000000000}}'}, list(range(10))),
        ({"startingTimestamp": 1_800_000_000_000, "startingOffsetsByTimestampStrategy": "latest"}, []),
        ({"minPartitions": 4}, list(range(10))),
        ({"maxRecordsPerPartition": 3}, list(range(10))),
    ],
)
def test_reads_from_where_to_where_it_is_told(
    read: Read, new_topic: NewTopic, options: dict[str, Any], expected: list[int]
) -> None:
    topic = new_topic(records=10)

    rows = read(subscribe=topic, **{name: str(value).replace('"T"', f'"{topic}"') for name, value in options.items()})

    assert values(rows) == expected


def test_subscribes_by_pattern_and_assigns(read: Read, client: Confluent, new_topic: NewTopic) -> None:
    first, second = new_topic(records=2), new_topic(partitions=3, records=1)

    assert {row["topic"] for row in read(subscribePattern=f"({first}|{second})")} == {first, second}
    assert [row["partition"] for row in read(assign=json.dumps({second: [0, 2]}))] == [0, 2]
    assert len(read(subscribe=f"{first},{second}")) == 5


def test_cuts_partitions_into_tasks(reader: Callable[..., BatchReader], new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2, records=10)

    assert len(reader(subscribe=topic).partitions()) == 2
    assert len(reader(subscribe=topic, minPartitions=5).partitions()) in (4, 5, 6)
    assert len(reader(subscribe=topic, maxRecordsPerPartition=4).partitions()) == 6


def test_reads_committed_transactions_only_if_asked(read: Read, client: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic()
    transactions = client.transactional(f"{topic}-transactions")
    for number in range(6):
        transactions.begin()
        transactions.send(topic, [Record(b"%d" % number), Record(b"%d" % (number + 100))])
        (transactions.commit if number % 2 else transactions.abort)()
    transactions.begin()
    transactions.send(topic, [Record(b"1000")])

    committed = read(subscribe=topic, kafka_isolation_level="read_committed")
    in_slices = read(subscribe=topic, kafka_isolation_level="read_committed", maxRecordsPerPartition=2)
    everything = read(subscribe=topic)
    transactions.abort()
    transactions.close()

    assert values(committed) == values(in_slices) == [1, 101, 3, 103, 5, 105]
    assert values(everything) == [0, 100, 1, 101, 2, 102, 3, 103, 4, 104, 5, 105, 1000]


def test_an_unknown_topic_is_a_sentence(read: Read, new_topic: NewTopic) -> None:
    topic = new_topic()

    with pytest.raises(TopicError, match=r"no topic 'no-such-topic' .* check the name"):
        read(subscribe=f"{topic},no-such-topic")
    with pytest.raises(TopicError, match=r"No topic .* matches subscribePattern 'no-such\.\*'"):
        read(subscribePattern="no-such.*")
    with pytest.raises(TopicError, match=f"names partition {topic}-9"):
        read(assign=json.dumps({topic: [9]}))


def test_offsets_that_do_not_name_the_partitions_are_a_sentence(read: Read, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2, records=1)

    with pytest.raises(OptionError, match=f"startingOffsets does not name partition {topic}-1"):
        read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}}))
    with pytest.raises(OptionError, match="endingOffsets names partition other-0, which is not read"):
        read(subscribe=topic, endingOffsets=json.dumps({topic: {"0": 0, "1": 0}, "other": {"0": 1}}))


def test_a_time_after_the_last_record_is_a_sentence(read: Read, new_topic: NewTopic) -> None:
    topic = new_topic(records=1)

    with pytest.raises(OptionError, match=r"no record at or after 1800000000000 ms.*Strategy to latest"):
        read(subscribe=topic, startingTimestamp=1_800_000_000_000)


def test_offsets_beyond_the_end_are_lost_data(read: Read, new_topic: NewTopic) -> None:
    topic = new_topic(records=5)
    beyond = json.dumps({topic: {"0": 50}})

    with pytest.raises(DataLossError, match=r"ends at offset 5, but 50 was asked for.*failOnDataLoss"):
        read(subscribe=topic, endingOffsets=beyond)
    assert values(read(subscribe=topic, endingOffsets=beyond, failOnDataLoss="false")) == [0, 1, 2, 3, 4]


def test_offsets_that_were_removed_are_lost_data(
    read: Read, client: Confluent, new_topic: NewTopic, reader: Callable[..., BatchReader]
) -> None:
    topic = new_topic(records=10)
    planned = {allows: reader(subscribe=topic, failOnDataLoss=allows) for allows in ("true", "false")}
    tasks = {allows: found.partitions() for allows, found in planned.items()}
    delete_records(client, topic, 4)

    with pytest.raises(DataLossError, match="begins at offset 4, but 0 is where the read starts"):
        read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}}))
    with pytest.raises(DataLossError, match="holds offsets 4 to 10, but 0 to 10 should be read"):
        list(planned["true"].read(tasks["true"][0]))
    (batch,) = planned["false"].read(tasks["false"][0])
    assert batch.column("offset").to_pylist() == [4, 5, 6, 7, 8, 9]
    assert values(read(subscribe=topic)) == [4, 5, 6, 7, 8, 9]


def delete_records(client: Confluent, topic: str, before: int) -> None:
    from confluent_kafka import TopicPartition

    (future,) = client._admin.delete_records([TopicPartition(topic, 0, before)]).values()
    future.result(30)


def test_a_read_that_waits_for_ever_ends(
    read: Read, client: Confluent, new_topic: NewTopic, reader: Callable[..., BatchReader]
) -> None:
    """An open transaction holds back what was there, uncommitted, when the read was planned."""
    topic = new_topic(records=1)
    transactions = client.transactional(f"{topic}-transactions")
    transactions.begin()
    transactions.send(topic, [Record(b"1")])
    uncommitted = reader(subscribe=topic, kafka_default_api_timeout_ms=300, kafka_fetch_max_wait_ms=50)
    (task,) = uncommitted.partitions()
    assert isinstance(task, RangeTask)
    task.client = task.client._replace(read_committed=True)

    with pytest.raises(DataLossError, match=r"holds offsets 0 to 1, but 1 to 2 should be read"):
        list(uncommitted.read(task))
    task.fail_on_data_loss = False
    (batch,) = uncommitted.read(task)
    transactions.abort()
    transactions.close()

    assert batch.column("offset").to_pylist() == [0]
