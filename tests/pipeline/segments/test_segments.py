"""Scans of a store's files: of a running broker, of a stopped one, and of a copy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from ottla.pipeline.errors import DataLossError, OptionError, PipelineError, StoreError, TopicError
from ottla.pipeline.segments.address import folder_of
from ottla.pipeline.segments.options import parse_segment_options
from ottla.pipeline.segments.source import SegmentsReader

Scan = Callable[..., list[dict[str, Any]]]
NewTopic = Callable[..., str]
SMALL_SEGMENTS = {"segment.bytes": "1048576"}


def scan(path: Path, **options: object) -> list[dict[str, Any]]:
    """The rows of a scan, without a Spark session."""
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    reader = SegmentsReader(parse_segment_options(given | {"path": str(path)}))
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in rows]


def consumed(broker: OttlaBroker, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = Confluent(broker.bootstrap).consumer(topic, BEGINNING, isolation="read_committed")
    try:
        return [(record.offset, record.key, record.value) for record in consumer.take(count)]
    finally:
        consumer.close()


def test_scans_a_running_broker(broker: OttlaBroker, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2, records=50)

    rows = scan(broker.folder / "data", subscribe=topic)

    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (topic, partition, offset) for partition in range(2) for offset in range(50)
    ]
    assert values(rows) == [b"%d" % number for number in range(50)] * 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"T":{"0":7}}'}, [7, 8, 9]),
        ({"endingOffsets": '{"T":{"0":2}}'}, [0, 1]),
        ({"startingTimestamp": 1_700_000_007_500}, [8, 9]),
        ({"endingTimestamp": 1_700_000_001_500}, [0, 1]),
        ({"startingTimestamp": 1_800_000_000_000, "startingOffsetsByTimestampStrategy": "latest"}, []),
        ({"startingOffsetsByTimestamp": '{"T":{"0":1700000007500}}'}, [8, 9]),
        ({"maxPartitionBytes": 1}, list(range(10))),
        ({"subscribe": "T,T"}, list(range(10))),
    ],
)
def test_reads_from_where_to_where_it_is_told(
    broker: OttlaBroker, new_topic: NewTopic, options: dict[str, Any], expected: list[int]
) -> None:
    topic = new_topic(records=10)
    given = {"subscribe": topic} | {
        name: str(text).replace("T", topic) for name, text in options.items() if name[0] != "m"
    }
    given |= {name: text for name, text in options.items() if name[0] == "m"}

    assert values(scan(broker.folder / "data", **given)) == [b"%d" % number for number in expected]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_reads_compressed_batches_with_headers(
    broker: OttlaBroker, client: Confluent, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic()
    producer = client.producer(codec=codec)
    producer.send(topic, [Record(b"v" * number, b"k", (("h", b"%d" % number),)) for number in range(100)])
    producer.close()

    rows = scan(broker.folder / "data", subscribe=topic, includeHeaders="true")

    assert values(rows) == [b"v" * number for number in range(100)]
    assert [row["headers"] for row in rows] == [[{"key": "h", "value": b"%d" % number}] for number in range(100)]


def test_reads_what_a_consumer_of_committed_records_reads(own_broker: OttlaBroker) -> None:
    """Over many segments, with transactions open at each border, live, stopped, without a checkpoint, and as a copy."""
    client = Confluent(own_broker.bootstrap)
    client.create_topic("topic", configs=SMALL_SEGMENTS)
    first, second = client.transactional("first"), client.transactional("second")
    expected = 0
    for number in range(24):
        first.begin()
        second.begin()
        for _ in range(3):
            first.send("topic", [Record(b"%d" % number + b"a" * 30_000)])
            second.send("topic", [Record(b"%d" % number + b"b" * 30_000)])
        (first.commit if number % 2 else first.abort)()
        (second.abort if number % 3 else second.commit)()
        expected += 3 * (number % 2) + 3 * (number % 3 == 0)
    first.begin()
    first.send("topic", [Record(b"open")])
    found = consumed(own_broker, "topic", expected)
    folder = own_broker.folder / "data"
    stores = list(folder.glob("node-*/topic.*/0"))

    live = scan(folder, subscribe="topic")
    in_parts = scan(folder, subscribe="topic", maxPartitionBytes=100_000)
    everything = scan(folder, subscribe="topic", kafka_isolation_level="read_uncommitted")
    own_broker.kill()
    killed = scan(folder, subscribe="topic")
    shutil.copytree(folder, folder.parent / "copy")
    (stores[0] / "checkpoint").unlink(missing_ok=True)
    without_checkpoint = scan(folder, subscribe="topic")
    own_broker.start()
    first.abort()
    own_broker.stop()

    assert len(list(stores[0].glob("*.data"))) > 2
    assert len(found) == expected
    for rows in (live, in_parts, killed, without_checkpoint, scan(folder.parent / "copy", subscribe="topic")):
        assert [(row["offset"], row["key"], row["value"]) for row in rows] == found
    assert len(everything) == 24 * 6 + 1
    assert values(scan(folder, subscribe="topic")) == [value for _, _, value in found]


def test_begins_where_the_log_begins(broker: OttlaBroker, client: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic(records=10)
    (future,) = client._admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    future.result(30)
    folder = broker.folder / "data"
    early = json.dumps({topic: {"0": 0}})

    assert values(scan(folder, subscribe=topic)) == [b"%d" % number for number in range(4, 10)]
    with pytest.raises(DataLossError, match="begins at offset 4, but 0 is where the read starts"):
        scan(folder, subscribe=topic, startingOffsets=early)
    assert len(scan(folder, subscribe=topic, startingOffsets=early, failOnDataLoss="false")) == 6


def test_a_deleted_topic_is_not_there(broker: OttlaBroker, client: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic(records=3)
    client.delete_topic(topic)

    with pytest.raises(TopicError, match=f"no topic '{topic}' in"):
        scan(broker.folder / "data", subscribe=topic)


def test_a_damaged_batch_is_a_sentence(own_broker: OttlaBroker) -> None:
    client = Confluent(own_broker.bootstrap)
    client.create_topic("topic")
    producer = client.producer()
    producer.send("topic", [Record(b"value" * 100)])
    producer.close()
    own_broker.stop()
    # A second block behind it, so that this is damage and no torn end.
    own_broker.start()
    producer = client.producer()
    producer.send("topic", [Record(b"second")])
    producer.close()
    own_broker.stop()
    (data,) = own_broker.folder.glob("data/node-*/topic.*/0/*.data")
    content = bytearray(data.read_bytes())
    content[content.index(b"value" * 50)] ^= 1
    data.write_bytes(content)

    with pytest.raises(PipelineError, match=r"topic-0 .*checksum|fsck"):
        scan(own_broker.folder / "data", subscribe="topic")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": ""}, r"path is missing: \.load\('DATA_DIR'\)"),
        ({"startingTime": "5"}, "no option startingtime for format\\('ottla-segments'\\)"),
        ({"maxPartitionBytes": "none"}, "a number of bytes above 0"),
        ({"subscribe": ""}, "subscribe is empty"),
        ({"endingOffsets": "all"}, "endingOffsets is not JSON"),
    ],
)
def test_wrong_options_are_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse_segment_options({"path": "/data", "subscribe": "topic"} | options)


def test_a_folder_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot be read as a data folder.*--data-dir"):
        scan(tmp_path, subscribe="topic")
    with pytest.raises(StoreError, match="cannot be read as a data folder"):
        scan(tmp_path / "missing", subscribe="topic")


def test_brokers_are_not_asked(tmp_path: Path) -> None:
    options = parse_segment_options({"path": "file:/data", "subscribe": "t", "kafka.bootstrap.servers": "host:1"})

    assert (folder_of(options.path), options.source.client.read_committed) == ("/data", True)
