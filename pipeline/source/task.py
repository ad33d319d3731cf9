"""One task on an executor: a range of one partition, fetched and decoded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from ottla.pipeline.client import EARLIEST, LATEST, ClientSettings, Cluster, OffsetOutOfRangeError, PartitionFetcher
from ottla.pipeline.decoder import RecordDecoder
from ottla.pipeline.errors import DataLossError
from ottla.pipeline.source.ranges import OffsetRange

__all__ = ["RangeTask", "read_range"]


class RangeTask(InputPartition):
    """What an executor needs to read its range; it is pickled."""

    def __init__(
        self, part: OffsetRange, client: ClientSettings, *, include_headers: bool, fail_on_data_loss: bool
    ) -> None:
        self.part = part
        self.client = client
        self.include_headers = include_headers
        self.fail_on_data_loss = fail_on_data_loss


def read_range(task: RangeTask) -> Iterator[Any]:
    """Yield the range's records as Arrow batches.

    What is missing in the middle, by compaction or as an aborted transaction, is passed over. What is missing because
    the log begins later or ends earlier is DataLossError, or passed over too if the task allows loss.
    """
    cluster = Cluster(task.client)
    try:
        offset = task.part.start
        while offset < task.part.end:
            reading = _Reading(cluster, task)
            try:
                yield from reading.run(offset)
                offset = task.part.end
            except OffsetOutOfRangeError:
                offset = _after_loss(cluster, task, reading.offset)
    finally:
        cluster.close()


class _Reading:
    """Fetches on from an offset; `offset` is how far it came."""

    def __init__(self, cluster: Cluster, task: RangeTask) -> None:
        self.offset = 0
        self._task = task
        self._patience_s = cluster.settings.default_api_timeout_ms / 1000
        self._fetcher = PartitionFetcher(cluster, task.part.partition)
        self._decoder = RecordDecoder(
            *task.part.partition, include_headers=task.include_headers, check_crcs=task.client.check_crcs
        )

    def run(self, offset: int) -> Iterator[Any]:
        end = self._task.part.end
        self.offset = offset
        deadline = time.monotonic() + self._patience_s
        for fetched in self._fetcher.fetch(offset, end):
            if fetched.next_offset > self.offset:
                deadline = time.monotonic() + self._patience_s
                yield from self._decoder.decode(fetched.records, self.offset, end, fetched.aborted)
                self.offset = fetched.next_offset
            elif time.monotonic() > deadline:
                # What was there when the read was planned has gone, or waits for a transaction that never ends.
                raise OffsetOutOfRangeError


def _after_loss(cluster: Cluster, task: RangeTask, offset: int) -> int:
    """Where to go on behind records that are gone; DataLossError unless the task allows loss."""
    part = task.part
    earliest = cluster.offsets({part.partition: EARLIEST})[part.partition]
    latest = cluster.offsets({part.partition: LATEST})[part.partition]
    if task.fail_on_data_loss:
        raise DataLossError(
            f"Partition {part.partition} holds offsets {earliest} to {latest}, but {offset} to {part.end} should be "
            "read: retention removed records, or the topic was created again. Start from what is there (a stream: with "
            "a new checkpointLocation), or set failOnDataLoss to false to go on with it."
        )
    if offset < earliest:
        return earliest
    return part.end
