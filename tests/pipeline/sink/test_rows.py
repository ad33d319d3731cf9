"""The columns that a sink takes, and where their rows go."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from ottla.kproto.partitioner import partition_for_key
from ottla.pipeline.errors import OptionError, RowError, TopicError
from ottla.pipeline.sink import parse_sink_options, shape_of, write_idempotent
from ottla.pipeline.sink.commit import abort_batch, commit_batch
from ottla.pipeline.sink.task import write_in_transaction
from ottla.pipeline.source import OttlaDataSource

NewTopic = Callable[..., str]
Sink = Callable[..., Any]
HEADERS = "headers array"
TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "map": MapType(StringType(), BinaryType()),
    "array": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def schema(text: str) -> StructType:
    """Columns out of `name type; name type`: Spark's own notation takes a JVM to read."""
    columns = (column.split(" ", 1) for column in text.split("; "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in columns])


@pytest.fixture
def write(broker: OttlaBroker) -> Sink:
    """Writes rows as one task of a batch write does."""

    def run(ddl: str, rows: list[tuple[Any, ...]], topic: str | None = None, **options: str) -> int:
        given = {"kafka.bootstrap.servers": broker.bootstrap} | ({} if topic is None else {"topic": topic}) | options
        parsed = parse_sink_options(given, is_stream=False)
        return write_idempotent(parsed, shape_of(schema(ddl), topic), 0, batches(ddl, rows)).rows

    return run


def batches(ddl: str, rows: list[tuple[Any, ...]]) -> Iterator[Any]:
    arrow = to_arrow_schema(schema(ddl))
    names = arrow.names
    yield pa.RecordBatch.from_pylist([], schema=arrow)
    for start in range(0, len(rows), 1_000):
        piece = [dict(zip(names, row, strict=True)) for row in rows[start : start + 1_000]]
        yield pa.RecordBatch.from_pylist(piece, schema=arrow)


def stored(client: Confluent, topic: str, count: int, partition: int = 0) -> list[Record]:
    consumer = client.consumer(topic, BEGINNING, partition=partition)
    taken = consumer.take(count)
    consumer.close()
    return taken


def test_all_columns(write: Sink, client: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    rows = [
        ("k", b"v", [("h", b"1"), ("g", None)], 1, "passed over"),
        (None, None, None, 1, ""),
        ("", b"", [], 0, ""),
    ]
    assert write(f"key string; value binary; {HEADERS}; partition int; more string", rows, topic) == 3
    first, second = stored(client, topic, 2, 1)
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"), ("g", None)))
    assert (second.key, second.value, second.headers) == (None, None, ())
    (third,) = stored(client, topic, 1)
    assert (third.key, third.value) == (b"", b"")


def test_keys_choose_partitions_as_in_other_clients(write: Sink, client: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    keys = [b"key-%d" % (number % 50) for number in range(3_000)]
    write("key binary; value string; partition int", [(key, str(n), None) for n, key in enumerate(keys)], topic)
    for partition in range(3):
        mine = [n for n, key in enumerate(keys) if partition_for_key(key, 3) == partition]
        assert [int(record.value or b"") for record in stored(client, topic, len(mine), partition)] == mine


def test_rows_without_keys_take_turns(write: Sink, client: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    write("value string", [(str(n),) for n in range(4_000)], topic)
    found = [stored(client, topic, 1_000, partition) for partition in range(4)]
    assert sorted(int(record.value or b"") for part in found for record in part) == list(range(4_000))


def test_each_row_may_name_its_topic(write: Sink, client: Confluent, new_topic: NewTopic) -> None:
    topics = [new_topic(), new_topic()]
    write("topic string; value string", [(topics[n % 2], str(n)) for n in range(10)])
    assert [int(record.value or b"") for record in stored(client, topics[1], 5)] == [1, 3, 5, 7, 9]
    # The option is the stronger one.
    write("topic string; value string", [(None, "last")], topics[0])
    assert stored(client, topics[0], 6)[-1].value == b"last"


@pytest.mark.parametrize(
    ("ddl", "topic", "says"),
    [
        ("value string", None, "topic option required when no 'topic' attribute is present"),
        ("key string", "t", "Required attribute 'value' not found"),
        ("value int", "t", r"value attribute unsupported type int. value must be a\(n\) string or binary"),
        ("value string; key bigint", "t", "key attribute unsupported type bigint"),
        ("value string; partition bigint", "t", r"partition attribute .* must be a\(n\) int$"),
        ("value string; headers map", "t", r"must be a\(n\) array<struct<key:string,value:binary>>"),
        ("value string; topic binary", None, "topic attribute unsupported type binary"),
    ],
)
def test_wrong_columns_are_the_connectors_sentences(ddl: str, topic: str | None, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        shape_of(schema(ddl), topic)


def test_wrong_rows(write: Sink, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with pytest.raises(RowError, match="null topic present in the data"):
        write("topic string; value string", [(topic, "a"), (None, "b")])
    with pytest.raises(RowError, match="A header has no key"):
        write(f"value string; {HEADERS}", [("a", [{"key": None, "value": b""}])], topic)
    with pytest.raises(RowError, match="Invalid partition: -1"):
        write("value string; partition int", [("a", 0), ("b", -1)], topic)
    with pytest.raises(TopicError, match=f"There is no partition {topic}-2 "):
        write("value string; partition int", [("a", 2)], topic)
    with pytest.raises(TopicError, match="There is no topic 'nowhere'"):
        write("value string", [("a",)], "nowhere")


def test_a_batch_in_transactions_is_committed_as_a_whole(
    broker: OttlaBroker, new_topic: NewTopic, committed: Callable[[str], list[str]]
) -> None:
    topic = new_topic()
    options = parse_sink_options(
        {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "transactional": "true"}, is_stream=False
    )
    shape = shape_of(schema("value string"), topic)

    def write(run: str, task: int, value: str) -> Any:
        written = write_in_transaction(options, shape, run, task, batches("value string", [(value,)]))
        return pickle.loads(pickle.dumps(written))

    abort_batch(options, [write("failed", 0, "aborted"), None])
    commit_batch(options, [write("good", 0, "a"), write("good", 1, "b")])
    assert committed(topic) == ["a", "b"]


def test_a_batch_may_not_replace_a_topic() -> None:
    source = OttlaDataSource({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"})
    with pytest.raises(OptionError, match="Save mode overwrite is not allowed"):
        source.writer(schema("value string"), overwrite=True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kafka.acks": "1"}, "kafka.acks is 1: leave it out"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence is false"),
        ({"kafka.compression.type": "brotli"}, "write one of none, gzip, snappy, lz4, zstd"),
        ({"kafka.transactional.id": "mine"}, "Option kafka.transactional.id does not apply"),
        ({"kafka.key.serializer": "x"}, "Option kafka.key.serializer does not apply"),
        ({"topics": "t"}, "There is no option topics. There are kafka.bootstrap.servers, topic"),
        ({"transactional": "maybe"}, "Option transactional is 'maybe': write one of true, false"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_sink_options({"kafka.bootstrap.servers": "localhost:9092", **options}, is_stream=True)


def test_streams_write_in_transactions_unless_told_otherwise() -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "checkpointLocation": "/c", "kafka.linger.ms": "5"}
    assert parse_sink_options(given, is_stream=True).is_transactional
    assert not parse_sink_options(given, is_stream=False).is_transactional
    assert not parse_sink_options(given | {"transactional": "false"}, is_stream=True).is_transactional
