"""The source is only a client: it reads the oracle as it reads Ottla."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests import java
from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from ottla.pipeline.errors import TopicError
from ottla.pipeline.source.batch import BatchReader
from ottla.pipeline.source.options import parse_options
from ottla.pipeline.source.stream import StreamReader

pytestmark = [pytest.mark.java, pytest.mark.kafka]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    if reason := java.missing():
        pytest.skip(reason)
    with ApacheKafka(tmp_path, jvm_options=java.QUICK) as process:
        yield process


def values(reader: BatchReader | StreamReader, tasks: Any) -> list[bytes]:
    return [row["value"] for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def test_reads_apache_kafka(kafka: ApacheKafka) -> None:
    client = Confluent(kafka.bootstrap)
    client.create_topic("topic")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = client.producer(codec=codec)
        producer.send("topic", [Record(codec.encode() * 30, headers=(("codec", b"x"),)) for _ in range(20)])
        producer.close()
    transactions = client.transactional("transactions")
    for number in range(4):
        transactions.begin()
        transactions.send("topic", [Record(b"%d" % number)])
        (transactions.commit if number % 2 else transactions.abort)()
    transactions.close()
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
    }
    plain = [codec * 30 for codec in (b"none", b"gzip", b"snappy", b"lz4", b"zstd") for _ in range(20)]

    batch = BatchReader(parse_options(options | {"subscribe": "topic"}, is_stream=False))
    stream = StreamReader(parse_options(options | {"subscribePattern": "top.*"}, is_stream=True))
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())

    assert values(batch, batch.partitions()) == [*plain, b"1", b"3"]
    assert values(stream, stream.partitions(start, end)) == [*plain, b"1", b"3"]
    with pytest.raises(TopicError, match="no topic 'other'"):
        BatchReader(parse_options(options | {"subscribe": "other"}, is_stream=False)).partitions()
    stream.stop()
