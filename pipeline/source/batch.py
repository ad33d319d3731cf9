"""`spark.read.format("ottla")`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.pipeline.source.options import SourceOptions
from ottla.pipeline.source.planner import Planner
from ottla.pipeline.source.ranges import split
from ottla.pipeline.source.task import RangeTask, read_range

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """Plans a read on the driver, once, and reads its ranges on the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """A task for each partition or a slice of it."""
        options = self._options
        planner = Planner(options)
        try:
            wanted = planner.offsets.batch(planner.partitions(must_exist=True))
            ranges = split(wanted, options.min_partitions, options.max_records_per_partition)
        finally:
            planner.cluster.close()
        return [
            RangeTask(
                part,
                options.client,
                include_headers=options.include_headers,
                fail_on_data_loss=options.fail_on_data_loss,
            )
            for part in ranges
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One task's rows. Spark asks for a partition of its own making where there is nothing to read."""
        return read_range(partition) if isinstance(partition, RangeTask) else iter(())
