"""Batch reads, by Spark's own connector and without a jar."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest

from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.topics import Topics, numbers, rows_of, values

# Recent: what is older than a week is for retention to take, whenever it comes by.
T0_MS = time.time_ns() // 1_000_000 - 86_400_000


def send_numbers(client: Confluent, topic: str, count: int, *, partitions: int = 1, start: int = 0) -> None:
    """Numbers from `start` on as values, to the partitions in turn, each a second after the one before."""
    producer = client.producer()
    producer.send(
        topic,
        [
            Record(b"%d" % n, key=b"key-%d" % n, partition=n % partitions, timestamp_ms=T0_MS + n * 1000)
            for n in range(start, start + count)
        ],
    )
    producer.close()


@pytest.mark.quick
def test_reads_a_topic_from_the_earliest_to_the_latest_offset(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    producer = reference.producer(codec="lz4")
    headers = (("trace", b"1"), ("empty", b""))
    producer.send(topic, [Record(b"%d" % n, key=b"k%d" % n, headers=headers, partition=n % 3) for n in range(300)])
    producer.send(topic, [Record(None, key=b"gone", partition=0, timestamp_ms=T0_MS)])

    table = reader.batch(topic, includeHeaders=True)

    assert [(name, kind) for name, kind in table.dtypes if name != "headers"] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    rows = rows_of(table)
    assert len(rows) == 301
    assert [row.offset for row in rows if row.partition == 0] == list(range(101))
    first, last = rows[0], rows[100]
    assert (first.key, first.value, first.timestampType) == (b"k0", b"0", 0)
    assert [(header.key, bytes(header.value)) for header in first.headers] == list(headers)
    assert (last.key, last.value) == (b"gone", None)
    assert int(last.timestamp.timestamp() * 1000) == T0_MS
    assert sorted(int(row.value) for row in rows if row.value is not None) == list(range(300))


def test_the_latest_offset_as_a_start_means_nothing_yet(reader: Topics, reference: Confluent, topic: str) -> None:
    send_numbers(reference, topic, 10)
    ends = {topic: {"0": 10}}
    assert reader.batch(topic, startingOffsets=ends, endingOffsets="latest").count() == 0


def test_offsets_for_each_partition_as_json(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    send_numbers(reference, topic, 20, partitions=2)
    starts, ends = {topic: {"0": 3, "1": -2}}, {topic: {"0": -1, "1": 4}}
    rows = rows_of(reader.batch(topic, startingOffsets=starts, endingOffsets=ends))
    assert [row.offset for row in rows if row.partition == 0] == [3, 4, 5, 6, 7, 8, 9]
    assert [row.offset for row in rows if row.partition == 1] == [0, 1, 2, 3]


def test_offsets_by_timestamp(reader: Topics, reference: Confluent, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    send_numbers(reference, topic, 20, partitions=2)
    table = reader.batch(topic, startingTimestamp=T0_MS + 4_500, endingTimestamp=T0_MS + 12_000)
    assert numbers(table) == list(range(5, 12))
    by_partition = reader.batch(
        topic,
        startingOffsetsByTimestamp={topic: {"0": T0_MS + 8_000, "1": T0_MS}},
        endingOffsetsByTimestamp={topic: {"0": T0_MS + 14_000, "1": T0_MS + 3_000}},
    )
    assert numbers(by_partition) == [1, 8, 10, 12]


def test_a_start_after_every_record_is_refused_unless_told_otherwise(
    reader: Topics, reference: Confluent, topic: str
) -> None:
    send_numbers(reference, topic, 5)
    later = T0_MS + 3_600_000
    with pytest.raises(Exception, match=r"No offset matched|has no record at or after"):
        reader.batch(topic, startingTimestamp=later, startingOffsetsByTimestampStrategy="error").count()
    lenient = reader.batch(topic, startingTimestamp=later, startingOffsetsByTimestampStrategy="latest")
    assert lenient.count() == 0


def test_subscribes_by_pattern_and_by_assignment(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str]
) -> None:
    first, second = new_topic(partitions=2), new_topic(partitions=2)
    send_numbers(reference, first, 10, partitions=2)
    send_numbers(reference, second, 10, partitions=2, start=100)
    by_pattern = reader.batch(subscribePattern=f"{first}|{second}")
    assert numbers(by_pattern) == [*range(10), *range(100, 110)]

    assigned = reader.batch(assign={first: [1], second: [0]})
    assert numbers(assigned) == [1, 3, 5, 7, 9, 100, 102, 104, 106, 108]


def test_min_partitions_splits_a_partition_into_tasks(reader: Topics, reference: Confluent, topic: str) -> None:
    send_numbers(reference, topic, 100)
    table = reader.batch(topic, minPartitions=4)
    assert table.rdd.getNumPartitions() == 4
    assert numbers(table) == list(range(100))


@pytest.mark.quick
def test_read_committed_sees_only_what_transactions_committed(reader: Topics, reference: Confluent, topic: str) -> None:
    writer = reference.transactional("spark-batch")
    writer.begin()
    writer.send(topic, [Record(b"%d" % n) for n in range(10)])
    writer.commit()
    writer.begin()
    writer.send(topic, [Record(b"%d" % n) for n in range(100, 120)])
    writer.abort()
    writer.begin()
    writer.send(topic, [Record(b"%d" % n) for n in range(10, 20)])
    writer.commit()
    # The end of a transaction is answered before its markers are written, and Spark asks where the end is but once.
    with closing(reference.consumer(topic, BEGINNING, isolation="read_committed")) as consumer:
        assert len(consumer.take(20)) == 20
    committed = reader.batch(topic, kafka__isolation__level="read_committed")
    assert [int(text) for text in values(committed)] == list(range(20))
    everything = reader.batch(topic, kafka__isolation__level="read_uncommitted")
    assert numbers(everything) == [*range(20), *range(100, 120)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(reader: Topics, reference: Confluent, topic: str, codec: str) -> None:
    producer = reference.producer(codec=codec)
    producer.send(topic, [Record(b"%d" % n) for n in range(2_000)])
    assert numbers(reader.batch(topic)) == list(range(2_000))


def test_a_topic_that_is_not_there(reader: Topics) -> None:
    said = {"kafka": "UnknownTopicOrPartition", "ottla": "no topic 'never-created' .*: check the name"}
    with pytest.raises(Exception, match=said[reader.format]):
        reader.batch("never-created").count()
