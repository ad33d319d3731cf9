"""Jobs of `ottla table sync`, as the tests run them: in the shared session, in one folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.topics import await_that, stop_queries
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.tables import config, runner


class Tables:
    """Jobs of one test, in one folder."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, source: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.source = source
        self.lines: list[str] = []

    def sync(self, *tables: dict[str, Any], as_json: bool = True, **entries: Any) -> list[dict[str, Any]]:
        """Run a job to its end; what it said of its batches."""
        self.lines.clear()
        runner.run(self._job(tables, entries), say=self.lines.append, as_json=as_json, spark=self.spark)
        return [json.loads(line) for line in self.lines] if as_json else []

    @contextmanager
    def following(self, *tables: dict[str, Any], **entries: Any) -> Iterator[Following]:
        """A job that goes on while the block runs; what ended it earlier is raised at the block's end."""
        continuous = {"trigger": "continuous", "interval": "200 milliseconds", **entries}
        job = Following(self.spark, self._job(tables, continuous))
        job.start()
        try:
            yield job
        finally:
            job.stop()
        if job.failure is not None:
            raise job.failure

    def _job(self, tables: Sequence[dict[str, Any]], entries: dict[str, Any]) -> config.JobConfig:
        return config.parse(
            {
                "bootstrap": self.bootstrap,
                "checkpoint": str(self.folder / "checkpoints"),
                "source": self.source,
                "tables": [{"path": self.path(table["topic"])} | table for table in tables],
                **entries,
            }
        )

    def path(self, topic: str) -> str:
        return str(self.folder / topic)

    def table(self, topic: str, kind: str = "delta") -> DataFrame:
        return self.spark.read.format(kind).option("mergeSchema", "true").load(self.path(topic))

    def dead(self, topic: str, kind: str = "delta") -> DataFrame:
        return self.spark.read.format(kind).load(self.path(topic) + "_dead_letters")


class Following(threading.Thread):
    """A continuous job, beside the scenario. `rows` is how many rows it has said to be in tables."""

    def __init__(self, spark: SparkSession, job: config.JobConfig) -> None:
        super().__init__()
        self.rows = 0
        self.failure: PipelineError | None = None
        self._spark = spark
        self._job = job

    def run(self) -> None:
        try:
            runner.run(self._job, say=self._count, as_json=True, spark=self._spark)
        except PipelineError as error:
            self.failure = error

    def stop(self) -> None:
        while self.is_alive():
            stop_queries(self._spark)
            self.join(0.1)

    def await_rows(self, count: int) -> None:
        await_that(lambda: self.rows == count or not self.is_alive())
        assert self.rows == count, f"the job ended: {self.failure!r}"

    def await_failure(self) -> PipelineError:
        """What ended the job, which was to be expected."""
        await_that(lambda: not self.is_alive())
        assert self.failure is not None
        failure, self.failure = self.failure, None
        return failure

    def _count(self, line: str) -> None:
        self.rows += json.loads(line)["rows"]


def send(client: Confluent, topic: str, documents: Sequence[object], *, key: str | None = None) -> None:
    """JSON documents; bytes and None as they are. `key` names the field whose text is the record's key."""
    producer = client.producer()
    records = []
    for document in documents:
        value = document if isinstance(document, bytes | None) else json.dumps(document).encode()
        record_key = str(document[key]).encode() if key and isinstance(document, dict) else None
        records.append(Record(value, key=record_key))
    producer.send(topic, records)
    producer.close()
