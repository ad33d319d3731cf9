"""Streams, driven as Spark drives them: initial offset, latest offset, partitions, read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from ottla.pipeline.errors import DataLossError, OptionError, PipelineError
from ottla.pipeline.source.options import parse_options
from ottla.pipeline.source.stream import StreamReader

NewTopic = Callable[..., str]
Produce = Callable[..., None]
ALL = ReadAllAvailable()


@pytest.fixture
def stream(broker: OttlaBroker) -> Iterator[Callable[..., StreamReader]]:
    """A reader with the connector's options, as of one run of a query."""
    made: list[StreamReader] = []

    def make(**options: object) -> StreamReader:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.default.api.timeout.ms": "5000"}
        given |= {name.replace("_", "."): str(value) for name, value in options.items()}
        made.append(StreamReader(parse_options(given, is_stream=True)))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def through_json(offsets: Any) -> Any:
    return json.loads(json.dumps(offsets))


def read(reader: StreamReader, start: Any, end: Any) -> list[int]:
    tasks = reader.partitions(through_json(start), through_json(end))
    return [int(row["value"]) for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def test_reads_batch_after_batch(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    topic = new_topic(records=3)
    reader = stream(subscribe=topic, startingOffsets="earliest")

    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    produce_values(client, topic, b"3", b"4")
    second = reader.latestOffset(first, ALL)

    assert start == reader.initialOffset() == {topic: {"0": 0}}
    assert second == {topic: {"0": 5}}
    assert read(reader, start, first) == [0, 1, 2]
    assert read(reader, first, second) == [3, 4]
    assert reader.latestOffset(second, ALL) == second
    assert reader.partitions(second, second) == []
    assert reader.reportLatestOffset() == second


def test_begins_at_the_end_unless_told(stream: Callable[..., StreamReader], new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2, records=3)

    assert stream(subscribe=topic).initialOffset() == {topic: {"0": 3, "1": 3}}


def test_a_first_batch_that_is_repeated_reads_the_same(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    """Spark asks a restarted query anew where its first batch began; by then the latest offset is another."""
    topic = new_topic(records=2)
    before = stream(subscribe=topic)
    start = before.initialOffset()
    produce_values(client, topic, b"2", b"3")
    end = before.latestOffset(start, ALL)
    produce_values(client, topic, b"4")
    after = stream(subscribe=topic)

    assert read(after, after.initialOffset(), end) == read(before, start, end) == [2, 3]
    assert read(after, end, after.latestOffset(through_json(end), ALL)) == [4]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": 5}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": 3}, ReadMinRows(3)),
        ({"minOffsetsPerTrigger": 3, "maxOffsetsPerTrigger": 5}, ReadMaxRows(5)),
    ],
)
def test_its_limits_are_those_of_the_options(
    stream: Callable[..., StreamReader], new_topic: NewTopic, options: dict[str, Any], limit: ReadLimit
) -> None:
    assert stream(subscribe=new_topic(), **options).getDefaultReadLimit() == limit


def test_a_limit_is_shared_by_the_partitions(stream: Callable[..., StreamReader], new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2, records=10)
    reader = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=6)

    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())

    assert end[topic] == {"0": 3, "1": 3}


def test_too_few_records_wait_for_more_or_for_the_time(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    topic = new_topic(records=2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 3}
    patient, impatient = stream(**options), stream(**options, maxTriggerDelay="0ms")
    start = patient.initialOffset()

    assert patient.latestOffset(start, patient.getDefaultReadLimit()) == start
    assert impatient.latestOffset(impatient.initialOffset(), impatient.getDefaultReadLimit())[topic] == {"0": 2}
    assert patient.latestOffset(start, ALL)[topic] == {"0": 2}
    produce_values(client, topic, b"2")
    assert patient.latestOffset(start, patient.getDefaultReadLimit())[topic] == {"0": 3}


def test_available_now_ends_where_the_topics_ended(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    topic = new_topic(records=5)
    reader = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=3, minOffsetsPerTrigger=3)
    reader.prepareForTriggerAvailableNow()
    produce_values(client, topic, b"late")

    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    second = reader.latestOffset(first, reader.getDefaultReadLimit())

    assert (first[topic], second) == ({"0": 3}, {topic: {"0": 5}})
    assert reader.latestOffset(second, reader.getDefaultReadLimit()) == second


def test_new_partitions_and_topics_are_read_from_their_beginning(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    topic = new_topic(records=1)
    reader = stream(subscribePattern=f"{topic}(-more)?", startingOffsets="latest")
    start = reader.initialOffset()
    client.add_partitions(topic, 2)
    client.create_topic(f"{topic}-more")
    produce_values(client, topic, b"1", partitions=2)
    produce_values(client, f"{topic}-more", b"2")

    end = reader.latestOffset(start, ALL)

    assert start == {topic: {"0": 1}}
    assert read(reader, start, end) == [1, 1, 2]


def test_a_topic_that_is_gone_is_lost_data(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent
) -> None:
    kept, gone = new_topic(records=1), new_topic(records=1)
    strict, loose = (
        stream(subscribe=f"{kept},{gone}", startingOffsets="earliest", failOnDataLoss=fails)
        for fails in ("true", "false")
    )
    start = strict.initialOffset()
    loose.initialOffset()
    client.delete_topic(gone)

    end = strict.latestOffset(start, ALL)

    with pytest.raises(DataLossError, match=f"{gone}-0 was read up to offset 0 and is gone.*failOnDataLoss"):
        read(strict, start, end)
    assert read(loose, start, loose.latestOffset(start, ALL)) == [0]


def test_a_topic_created_anew_is_lost_data(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    topic = new_topic(records=5)
    strict, loose = (
        stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=fails) for fails in ("true", "false")
    )
    start = {topic: {"0": 5}}
    client.delete_topic(topic)
    client.create_topic(topic)
    produce_values(client, topic, b"7", b"8")

    with pytest.raises(DataLossError, match=f"{topic}-0 was read up to offset 5 and now ends at 2"):
        read(strict, start, strict.latestOffset(start, ALL))
    assert read(loose, start, loose.latestOffset(start, ALL)) == [7, 8]


def test_a_topic_created_anew_that_has_grown_longer_is_lost_data(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    """The offset where the old topic ended is one of the new topic, whose first records must not be passed over."""
    topic = new_topic(records=2)
    strict, loose = (
        stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=fails) for fails in ("true", "false")
    )
    start = strict.latestOffset(strict.initialOffset(), ALL)
    assert start == loose.latestOffset(loose.initialOffset(), ALL)
    client.delete_topic(topic)
    client.create_topic(topic)
    produce_values(client, topic, b"7", b"8", b"9")

    with pytest.raises(DataLossError, match=f"Topic {topic} was deleted and created again while the query ran"):
        strict.latestOffset(start, ALL)
    end = loose.latestOffset(start, ALL)
    assert read(loose, start, end) == [7, 8, 9]
    produce_values(client, topic, b"10")
    assert read(loose, end, loose.latestOffset(end, ALL)) == [10]


def test_records_that_retention_removed_are_lost_data(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent
) -> None:
    topic = new_topic(records=10)
    strict, loose = (
        stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=fails) for fails in ("true", "false")
    )
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    (future,) = client._admin.delete_records([ConfluentPartition(topic, 0, 6)]).values()
    future.result(30)

    with pytest.raises(DataLossError, match=r"holds offsets 6 to 10, but 0 to 10 should be read.*checkpointLocation"):
        read(strict, start, end)
    assert read(loose, start, end) == [6, 7, 8, 9]


def test_a_checkpoint_of_another_topic_is_a_sentence(stream: Callable[..., StreamReader], new_topic: NewTopic) -> None:
    topic = new_topic(records=1)
    reader = stream(subscribe=topic, failOnDataLoss="false")

    with pytest.raises(OptionError, match=f"query on orders, this one reads {topic}: use a new checkpointLocation"):
        reader.latestOffset({"orders": {"0": 5}}, ALL)
    with pytest.raises(PipelineError, match=r"belongs to another source. Use a new checkpointLocation"):
        reader.latestOffset(through_json({"path": "file:/data", "line": 7}), ALL)


def test_a_stream_of_transactions_ends_at_the_last_stable_offset(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent
) -> None:
    topic = new_topic()
    transactions = client.transactional(f"{topic}-transactions")
    transactions.begin()
    transactions.send(topic, [Record(b"1")])
    reader = stream(subscribe=topic, startingOffsets="earliest", kafka_isolation_level="read_committed")
    start = reader.initialOffset()

    assert reader.latestOffset(start, ALL) == start
    transactions.commit()
    transactions.close()
    # A commit is answered before its marker is written.
    deadline = time.monotonic() + 120
    while (end := reader.latestOffset(start, ALL)) == start and time.monotonic() < deadline:
        time.sleep(0.01)
    assert read(reader, start, end) == [1]


def test_as_spark_asks_before_4_2(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    """No start, no limit: all that there is; and the first batch is the same when it is repeated."""
    topic = new_topic(records=3)
    reader = stream(subscribe=topic, startingOffsets="latest")
    start = reader.initialOffset()
    produce_values(client, topic, b"3", b"4")
    first = reader.latestOffset()
    assert read(reader, start, first) == [3, 4]
    produce_values(client, topic, b"5")
    again = stream(subscribe=topic, startingOffsets="latest")
    assert read(again, again.initialOffset(), first) == [3, 4]
    second = again.latestOffset()
    assert read(again, first, second) == [5]
    assert again.latestOffset() == second


def test_records_that_come_while_a_query_that_ends_by_itself_starts(
    stream: Callable[..., StreamReader], new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    """Spark asks for the end first, and for the start then; who begins at the end has the records between next time."""
    topic = new_topic(records=2)
    reader, before_4_2 = stream(subscribe=topic), stream(subscribe=topic)
    reader.prepareForTriggerAvailableNow()
    end = before_4_2.latestOffset()
    produce_values(client, topic, b"2")

    start = reader.initialOffset()
    assert start == before_4_2.initialOffset() == end == {topic: {"0": 2}}
    assert reader.latestOffset(start, ALL) == start
    assert read(reader, start, stream(subscribe=topic).latestOffset(start, ALL)) == [2]
