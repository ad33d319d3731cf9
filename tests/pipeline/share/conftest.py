"""A share group, and streams of it, driven as Spark's driver does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.spark.endurance.share_driver import configure
from ottla.pipeline.share.options import parse_share_options
from ottla.pipeline.share.stream import ShareStreamReader

ALL = ReadAllAvailable()
Stream = Callable[..., ShareStreamReader]

_numbers = itertools.count(1)


@pytest.fixture
def group(broker: OttlaBroker) -> str:
    """A group that begins at the first record."""
    name = f"share-{next(_numbers)}"
    configure(broker.bootstrap, name, share_auto_offset_reset="earliest")
    return name


@pytest.fixture
def stream(broker: OttlaBroker, group: str) -> Iterator[Stream]:
    """A reader, as of one run of a query; underscores in options stand for dots."""
    made: list[ShareStreamReader] = []

    def make(**options: object) -> ShareStreamReader:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.group.id": group}
        given |= {"kafka.default.api.timeout.ms": "10000", "kafka.fetch.max.wait.ms": "100"}
        given |= {name.replace("_", "."): str(value) for name, value in options.items()}
        made.append(ShareStreamReader(parse_share_options(given)))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def rows(reader: ShareStreamReader, start: Any, end: Any) -> list[dict[str, Any]]:
    """What the tasks of a batch give."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    return [row for task in reader.partitions(start, end) for batch in reader.read(task) for row in batch.to_pylist()]


def values(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"]) for row in found)


def next_batch(reader: ShareStreamReader, start: Any, limit: Any = ALL) -> Any:
    """The end of the next batch, which has records."""
    for _ in range(300):
        end = json.loads(json.dumps(reader.latestOffset(start, limit)))
        if end != start:
            return end
    raise AssertionError("no batch came")


@pytest.fixture
def lock_of_a_second(broker: OttlaBroker, group: str) -> None:
    """The group's locks last no longer than a second."""
    configure(broker.bootstrap, group, share_record_lock_duration_ms="1000")
