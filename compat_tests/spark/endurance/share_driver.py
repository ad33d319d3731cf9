"""A query on a share group without Spark: the same reader, driven as Spark's driver does, in one process.

    python -m compat_tests.spark.endurance.share_driver BOOTSTRAP TOPIC GROUP FOLDER [--until-caught-up]

It writes down what a batch is before its tasks start; its sink keeps each batch under its number and passes over one
that it has; then the batch is done. After a start it repeats the batch that is not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from compat_tests.wire.wire import Wire
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.pipeline.share.options import parse_share_options
from ottla.pipeline.share.stream import ShareStreamReader

RECORDS_A_BATCH: Final = 300
_GROUP_RESOURCE: Final = 32


def configure(bootstrap: str, group: str, **settings: str) -> None:
    """Set a group's own configuration; underscores stand for dots."""
    wire = Wire(bootstrap)
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=group, configs=configs)
    answer = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    wire.close()
    assert [each.error_code for each in answer.responses] == [0]


class Folder:
    """What each batch reads, which are done, and what the sink has of each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def next_batch(self) -> int:
        done = [int(path.suffix[1:]) for path in self._folder.glob("done.*")]
        return max(done, default=-1) + 1

    def read(self, name: str) -> Any:
        path = self._folder / name
        return json.loads(path.read_text()) if path.exists() else None

    def write(self, name: str, content: Any) -> None:
        """In one step, and only if it is not there."""
        if not (self._folder / name).exists():
            draft = self._folder / "draft"
            draft.write_text(json.dumps(content))
            os.replace(draft, self._folder / name)

    def sunk(self) -> list[list[Any]]:
        """All rows of the sink: batch, partition, offset, count of deliveries."""
        return [
            [int(path.suffix[1:]), *row]
            for path in sorted(self._folder.glob("sink.*"), key=lambda path: int(path.suffix[1:]))
            for row in json.loads(path.read_text())
        ]


class Driver:
    """Runs batch after batch."""

    def __init__(self, bootstrap: str, topic: str, group: str, folder: Path) -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.group.id": group}
        options |= {"kafka.fetch.max.wait.ms": "100", "minPartitions": "3"}
        self.reader = ShareStreamReader(parse_share_options(options))
        self._folder = Folder(folder)

    def run_batch(self, limit: Any) -> tuple[int, int] | None:
        """The number of a batch and of its rows; None if there is nothing to read."""
        batch = self._folder.next_batch()
        planned = self._folder.read(f"offsets.{batch}")
        if planned is None:
            earlier = self._folder.read(f"offsets.{batch - 1}")
            start = self.reader.initialOffset() if earlier is None else earlier[1]
            end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
            if end == start:
                return None
            planned = [start, end]
            self._folder.write(f"offsets.{batch}", planned)
        tasks = self.reader.partitions(*planned)
        random.shuffle(tasks)
        rows = [
            [row["partition"], row["offset"], row["deliveryCount"]]
            for task in tasks
            for rows in self.reader.read(task)
            for row in rows.to_pylist()
        ]
        self._folder.write(f"sink.{batch}", rows)
        self._folder.write(f"done.{batch}", True)
        return batch, len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--until-caught-up", action="store_true")
    arguments = parser.parse_args()
    driver = Driver(arguments.bootstrap, arguments.topic, arguments.group, arguments.folder)
    if arguments.until_caught_up:
        driver.reader.prepareForTriggerAvailableNow()
    limit = ReadAllAvailable() if arguments.until_caught_up else ReadMaxRows(RECORDS_A_BATCH)
    while True:
        done = driver.run_batch(limit)
        if done is not None:
            print(f"batch {done[0]}: {done[1]} rows", flush=True)
        elif arguments.until_caught_up:
            break
        else:
            time.sleep(0.02)
    driver.reader.stop()


if __name__ == "__main__":
    main()
