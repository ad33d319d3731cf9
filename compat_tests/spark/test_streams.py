"""Streams by Spark's own connector and without a jar: their triggers, their limits and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.test_batch import T0_MS, send_numbers
from compat_tests.spark.topics import Topics, await_that, batches, drain, finish, numbers, rows_of, to_files


def await_rows(query: StreamingQuery, count: int) -> None:
    await_that(lambda: sum(batches(query)) == count, query)


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_restart_from_the_checkpoint_adds_each_record_once(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    topic = new_topic(partitions=2)
    send_numbers(reference, topic, 50, partitions=2)
    assert numbers(drain(reader.stream(topic), tmp_path / "table", kind)) == list(range(50))
    send_numbers(reference, topic, 30, partitions=2, start=50)
    assert numbers(drain(reader.stream(topic), tmp_path / "table", kind)) == list(range(80))
    assert numbers(drain(reader.stream(topic), tmp_path / "table", kind)) == list(range(80))


def test_available_now_takes_no_more_than_max_offsets_in_a_batch(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=4)
    send_numbers(reference, topic, 100, partitions=4)
    query = to_files(reader.stream(topic, maxOffsetsPerTrigger=20, minPartitions=8), tmp_path / "table")
    finish(query)
    assert batches(query) == [20, 20, 20, 20, 20]
    assert numbers(reader.spark.read.parquet(str(tmp_path / "table"))) == list(range(100))


def test_min_offsets_wait_for_more(reader: Topics, reference: Confluent, topic: str, tmp_path: Path) -> None:
    stream = reader.stream(topic, minOffsetsPerTrigger=50, maxTriggerDelay="10m")
    send_numbers(reference, topic, 60)
    query = to_files(stream, tmp_path / "table", trigger={"processingTime": "200 milliseconds"})
    await_that(lambda: sum(batches(query)) == 60, query)
    send_numbers(reference, topic, 10, start=60)
    send_numbers(reference, topic, 50, start=70)
    await_that(lambda: sum(batches(query)) == 120, query)
    query.stop()
    assert min(batches(query)) >= 50


def test_processing_time_follows_the_topic(reader: Topics, reference: Confluent, topic: str, tmp_path: Path) -> None:
    query = to_files(reader.stream(topic), tmp_path / "table", trigger={"processingTime": "100 milliseconds"})
    for start in range(0, 30, 10):
        send_numbers(reference, topic, 10, start=start)
        await_rows(query, start + 10)
    query.stop()
    rows = rows_of(reader.spark.read.parquet(str(tmp_path / "table")))
    assert [row.offset for row in rows] == list(range(30))
    assert len(batches(query)) >= 3


def test_a_stream_from_the_latest_offset_sees_only_what_comes(
    reader: Topics, reference: Confluent, topic: str, tmp_path: Path
) -> None:
    send_numbers(reference, topic, 10)
    stream = reader.stream(topic, startingOffsets="latest")
    query = to_files(stream, tmp_path / "table", trigger={"processingTime": "100 milliseconds"})
    await_that(lambda: bool(query.recentProgress), query)
    send_numbers(reference, topic, 5, start=10)
    await_that(lambda: sum(batches(query)) == 5, query)
    query.stop()
    assert numbers(reader.spark.read.parquet(str(tmp_path / "table"))) == [10, 11, 12, 13, 14]


def test_starts_at_given_offsets_and_times(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    send_numbers(reference, topic, 20, partitions=2)
    by_offset = reader.stream(topic, startingOffsets={topic: {"0": 8, "1": -2}})
    assert numbers(drain(by_offset, tmp_path / "offset")) == sorted([16, 18, *range(1, 20, 2)])
    by_time = reader.stream(topic, startingTimestamp=T0_MS + 15_000)
    assert numbers(drain(by_time, tmp_path / "time")) == [15, 16, 17, 18, 19]


def test_a_pattern_finds_a_topic_that_comes_later(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    first = new_topic()
    send_numbers(reference, first, 10)
    stream = reader.stream(subscribePattern=f"{first}(-later)?")
    assert numbers(drain(stream, tmp_path / "table")) == list(range(10))
    reference.create_topic(f"{first}-later")
    send_numbers(reference, f"{first}-later", 5, start=100)
    assert numbers(drain(stream, tmp_path / "table")) == [*range(10), *range(100, 105)]


def test_an_assigned_partition_is_read_alone(
    reader: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=3)
    send_numbers(reference, topic, 30, partitions=3)
    assigned = reader.stream(assign={topic: [1]})
    assert numbers(drain(assigned, tmp_path / "table")) == list(range(1, 30, 3))


def test_a_committed_stream_waits_for_the_end_of_a_transaction(
    reader: Topics, reference: Confluent, topic: str, tmp_path: Path
) -> None:
    stream = reader.stream(topic, kafka__isolation__level="read_committed")
    writer = reference.transactional(f"spark-{topic}")
    writer.begin()
    writer.send(topic, [Record(b"%d" % n) for n in range(10)])
    assert numbers(drain(stream, tmp_path / "table")) == []
    writer.abort()
    writer.begin()
    writer.send(topic, [Record(b"%d" % n) for n in range(10, 20)])
    writer.commit()
    assert numbers(drain(stream, tmp_path / "table")) == list(range(10, 20))


def test_headers_in_a_stream(reader: Topics, reference: Confluent, topic: str) -> None:
    producer = reference.producer()
    producer.send(topic, [Record(b"%d" % n, headers=(("n", b"%d" % n),)) for n in range(5)])
    seen: list[tuple[bytes, str, bytes]] = []
    query = (
        reader.stream(topic, includeHeaders=True)
        .selectExpr("value", "headers[0] as header")
        .writeStream.foreachBatch(
            lambda rows, number: seen.extend((r.value, r.header.key, r.header.value) for r in rows.collect())
        )
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    assert sorted(seen) == [(b"%d" % n, "n", b"%d" % n) for n in range(5)]
