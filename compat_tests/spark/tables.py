"""Jobs of `ottla table sync`, as the tests run them: in the shared session, in one folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
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
        document = {
            "bootstrap": self.bootstrap,
            "checkpoint": str(self.folder / "checkpoints"),
            "source": self.source,
            "tables": [{"path": self.path(table["topic"])} | table for table in tables],
            **entries,
        }
        runner.run(config.parse(document), say=self.lines.append, as_json=as_json, spark=self.spark)
        return [json.loads(line) for line in self.lines] if as_json else []

    def path(self, topic: str) -> str:
        return str(self.folder / topic)

    def table(self, topic: str, kind: str = "delta") -> DataFrame:
        return self.spark.read.format(kind).option("mergeSchema", "true").load(self.path(topic))

    def dead(self, topic: str, kind: str = "delta") -> DataFrame:
        return self.spark.read.format(kind).load(self.path(topic) + "_dead_letters")


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
