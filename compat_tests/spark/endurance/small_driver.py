"""The job of `sink_kill_loop` without Spark: the same reader and writer, driven as Spark's driver does, in one process.

    python -m compat_tests.spark.endurance.small_driver BOOTSTRAP SOURCE TARGET CHECKPOINT [--until-caught-up]

It starts in half a second where Spark takes half a minute, so that many more kills hit the moments that matter. Like
Spark it writes down what a batch is before its tasks start, and that it is done after its commit; after a start it
repeats the batch that is not. Rows are dealt to tasks at random, and some tasks are run twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.pipeline.sink import parse_sink_options, shape_of
from ottla.pipeline.sink.commit import commit_micro_batch
from ottla.pipeline.sink.task import Attempt, Written, write_micro_batch
from ottla.pipeline.source.options import parse_options
from ottla.pipeline.source.stream import StreamReader

TASKS: Final = 3
RECORDS_A_BATCH: Final = 1_000
TWICE: Final = 0.1
"""Which share of tasks has an attempt before the one that counts."""
SCHEMA: Final = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


class Checkpoint:
    """As Spark's: the query's id, what each batch reads, and which are done."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        if not (folder / "id").exists():
            self._write("id", str(uuid.uuid4()))
        self.id = (folder / "id").read_text()

    def next_batch(self) -> int:
        done = [int(path.suffix[1:]) for path in self._folder.glob("done.*")]
        return max(done, default=-1) + 1

    def offsets(self, batch: int) -> Any:
        path = self._folder / f"offsets.{batch}"
        return json.loads(path.read_text()) if path.exists() else None

    def plan(self, batch: int, start: Any, end: Any) -> None:
        self._write(f"offsets.{batch}", json.dumps([start, end]))

    def done(self, batch: int) -> None:
        self._write(f"done.{batch}", "")

    def _write(self, name: str, text: str) -> None:
        draft = self._folder / "draft"
        draft.write_text(text)
        os.replace(draft, self._folder / name)


class Driver:
    """Runs batch after batch."""

    def __init__(self, bootstrap: str, source: str, target: str, checkpoint: Path) -> None:
        servers = {"kafka.bootstrap.servers": bootstrap}
        given = servers | {"subscribe": source, "startingOffsets": "earliest"}
        self._reader = StreamReader(parse_options(given, is_stream=True))
        self._options = parse_sink_options(servers | {"topic": target}, is_stream=True)
        self._shape = shape_of(SCHEMA, target)
        self._checkpoint = Checkpoint(checkpoint)
        self._limit = ReadMaxRows(RECORDS_A_BATCH)

    def run_batch(self) -> tuple[int, int] | None:
        """The number of a batch and of its rows; None if there is nothing to read."""
        batch = self._checkpoint.next_batch()
        planned = self._checkpoint.offsets(batch)
        if planned is None:
            earlier = self._checkpoint.offsets(batch - 1)
            start = self._reader.initialOffset() if earlier is None else earlier[1]
            end = self._reader.latestOffset(start, self._limit)
            if end == start:
                return None
            planned = start, end
            self._checkpoint.plan(batch, *planned)
        rows = pa.Table.from_batches(self._rows(*planned))
        dealt = [random.randrange(TASKS) for _ in range(rows.num_rows)]
        with ThreadPoolExecutor(TASKS) as pool:
            parts = [rows.filter(pa.array([to == task for to in dealt])) for task in range(TASKS)]
            written = list(pool.map(self._run_task, [batch] * TASKS, range(TASKS), parts))
        commit_micro_batch(self._options, written, batch)
        self._checkpoint.done(batch)
        return batch, rows.num_rows

    def _rows(self, start: Any, end: Any) -> Iterator[Any]:
        for task in self._reader.partitions(start, end):
            for batch in self._reader.read(task):
                yield batch.select(["key", "value"])

    def _run_task(self, batch: int, task: int, part: Any) -> Written:
        attempt = Attempt(self._checkpoint.id, batch, task)
        if random.random() < TWICE:
            write_micro_batch(self._options, self._shape, attempt, iter(part.to_batches()))
        return write_micro_batch(self._options, self._shape, attempt, iter(part.to_batches()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bootstrap")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--until-caught-up", action="store_true")
    arguments = parser.parse_args()
    driver = Driver(arguments.bootstrap, arguments.source, arguments.target, arguments.checkpoint)
    while True:
        done = driver.run_batch()
        if done is not None:
            print(f"batch {done[0]}: {done[1]} rows", flush=True)
        elif arguments.until_caught_up:
            break
        else:
            time.sleep(0.05)


if __name__ == "__main__":
    main()
