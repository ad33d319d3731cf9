"""A query of micro-batches, driven as Spark drives it, without Spark: each task writes, then the driver commits."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.selection import below, leave_out
from ottla.pipeline.sink import SinkOptions, parse_sink_options, shape_of
from ottla.pipeline.sink.commit import abort_micro_batch, commit_micro_batch
from ottla.pipeline.sink.task import Attempt, Written, write_micro_batch
from ottla.pipeline.source.batch import BatchReader
from ottla.pipeline.source.options import parse_options

SCHEMA = StructType([StructField("value", StringType())])
Tasks = Sequence[Sequence[str]]


class Query:
    """A stream into a topic. Its id is the checkpoint's: it stays the same when the driver is another."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.id = str(uuid.uuid4())
        self._shape = shape_of(SCHEMA, options.topic)

    def write(self, batch: int, task: int, values: Sequence[str]) -> Written:
        """One attempt at a task, its rows in Arrow batches of two."""
        rows = pa.record_batch([pa.array(values, pa.string())], names=["value"])
        pieces = (rows.slice(start, 2) for start in range(0, len(values), 2))
        return write_micro_batch(self.options, self._shape, Attempt(self.id, batch, task), pieces)

    def commit(self, batch: int, written: Sequence[Written | None]) -> None:
        commit_micro_batch(self.options, written, batch)

    def abort(self, batch: int, written: Sequence[Written | None]) -> None:
        abort_micro_batch(self.options, written, batch)

    def run(self, batch: int, tasks: Tasks) -> None:
        """A whole micro-batch."""
        self.commit(batch, [self.write(batch, number, values) for number, values in enumerate(tasks)])


@pytest.fixture
def new_query(broker: OttlaBroker) -> Callable[..., Query]:
    def make(topic: str, **options: str) -> Query:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        return Query(parse_sink_options(given, is_stream=True))

    return make


@pytest.fixture
def committed(broker: OttlaBroker) -> Callable[[str], list[str]]:
    """The values that a reader of committed records sees in a topic, in order of size."""

    def read(topic: str) -> list[str]:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
        reader = BatchReader(parse_options(given | {"kafka.isolation.level": "read_committed"}, is_stream=False))
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        return sorted(row["value"].decode() for batch in batches for row in batch.to_pylist())

    return read


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Against Apache Kafka with `-m spark` only: its JVM takes as long as all the others."""
    if "spark" not in config.option.markexpr:
        mine = below(Path(__file__).parent, items)
        leave_out(config, items, (item for item in mine if "kafka" in item.path.stem))
