"""Scans that want some of the columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from ottla.pipeline.decoder import COLUMNS
from ottla.pipeline.errors import OptionError
from ottla.pipeline.segments.options import parse_segment_options
from ottla.pipeline.segments.source import SegmentsDataSource, SegmentsReader

NewTopic = Callable[..., str]


def scan(path: Path, **options: str) -> list[dict[str, Any]]:
    reader = SegmentsReader(parse_segment_options(options | {"path": str(path)}))
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


@pytest.fixture
def topic(new_topic: NewTopic, client: Confluent) -> str:
    """Records with and without keys, values and headers."""
    name = new_topic(partitions=2)
    producer = client.producer()
    sent = [
        Record(
            None if n == 4 else b"v" * n, None if n % 2 else b"k%d" % n, (("h", b"%d" % n),) * (n % 3), partition=n % 2
        )
        for n in range(20)
    ]
    producer.send(name, sent)
    producer.close()
    return name


@pytest.mark.parametrize("wanted", [*COLUMNS, "offset,value", "headers, KEY", ",".join(reversed(COLUMNS))])
def test_they_are_what_they_are_among_all(broker: OttlaBroker, topic: str, wanted: str) -> None:
    folder = broker.folder / "data"
    names = {name.strip().lower() for name in wanted.split(",")}
    everything = scan(folder, subscribe=topic, includeHeaders="true")

    found = scan(folder, subscribe=topic, columns=wanted)

    kept = [name for name in COLUMNS if name.lower() in names]
    assert len(found) == 20
    assert [list(row) for row in found] == [kept] * 20
    assert found == [{name: row[name] for name in kept} for row in everything]


def test_the_schema_that_spark_is_told() -> None:
    source = SegmentsDataSource({"path": "/data", "subscribe": "t", "columns": "offset,key"})
    told = StructType([StructField("key", BinaryType()), StructField("offset", LongType())])

    assert source.schema() == "key binary, offset long"
    source.reader(told)
    with pytest.raises(OptionError, match="a schema of its own"):
        source.reader(StructType([*told.fields, StructField("value", BinaryType())]))


@pytest.mark.parametrize("wrong", ["", "offset,", "offset;value", "size"])
def test_names_that_there_are_not(wrong: str) -> None:
    with pytest.raises(OptionError, match=r"Option columns is .*: write names out of key, value, .*, headers, with"):
        parse_segment_options({"path": "/data", "subscribe": "t", "columns": wrong})
