"""The data source that Spark finds by the name `ottla-segments`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.pipeline.decoder import RecordDecoder, arrow_schema, spark_schema
from ottla.pipeline.segments.bounds import NO_BOUNDS, bounds_of
from ottla.pipeline.segments.options import SegmentOptions, parse_segment_options
from ottla.pipeline.segments.scan import Scan
from ottla.pipeline.source.source import require_schema

__all__ = ["SegmentsDataSource", "SegmentsReader"]


class SegmentsDataSource(DataSource):
    """The topics in a broker's data folder or in an object store as rows, read past the broker.

    `spark.read.format("ottla-segments").option("subscribe", "topic").load("DATA_DIR")`, of a stopped broker, of a copy
    of its folder, or of a running one, up to what it had written; or `.load("s3://bucket/prefix")`, of tiered topics,
    up to what was copied there. It reads what a read_committed consumer would. Driver and executors must reach it by
    the same path.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla-segments"

    def schema(self) -> str:
        options = parse_segment_options(self.options)
        return spark_schema(include_headers=options.source.include_headers, columns=options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_segment_options(self.options)
        require_schema(schema, arrow_schema(include_headers=options.source.include_headers, columns=options.columns))
        return PruningReader(options) if options.push_filters else SegmentsReader(options)


class _ScanTask(InputPartition):
    """One scan, as it is pickled to an executor."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan


class SegmentsReader(DataSourceReader):
    """Plans a scan on the driver and reads its parts on the executors."""

    def __init__(self, options: SegmentOptions) -> None:
        self._options = options
        self._bounds = NO_BOUNDS

    def partitions(self) -> list[InputPartition]:
        # Here, because executors need not wait for what only planning imports.
        from ottla.pipeline.segments.planner import plan

        return [_ScanTask(scan) for scan in plan(self._options, self._bounds)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._rows(partition.scan) if isinstance(partition, _ScanTask) else iter(())

    def _rows(self, scan: Scan) -> Iterator[Any]:
        source, wanted = self._options.source, scan.range
        decoder = RecordDecoder(
            *wanted.partition,
            include_headers=source.include_headers,
            columns=self._options.columns,
            check_crcs=source.client.check_crcs and not scan.is_checked,
        )
        for chunk in scan.chunks():
            yield from decoder.decode(chunk.content, wanted.start, wanted.end, chunk.aborted)


class PruningReader(SegmentsReader):
    """Leaves out scans that a query's conditions exclude.

    A class of its own, because Spark refuses readers that take filters unless its setting for that is on.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Take note of them. Spark applies each to the rows all the same: scans are coarser than they are."""
        self._bounds = bounds_of(filters)
        return filters
