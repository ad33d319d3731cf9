"""The data source that Spark finds by the name `ottla-segments`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.pipeline.decoder import RecordDecoder, arrow_schema, spark_schema
from ottla.pipeline.errors import StoreError
from ottla.pipeline.segments.options import SegmentOptions, parse_segment_options
from ottla.pipeline.segments.scan import Scan
from ottla.pipeline.source.source import require_schema
from ottla.storage.errors import StorageError
from ottla.storage.inspect.segment_reader import RealDisk, read_piece

__all__ = ["SegmentsDataSource", "SegmentsReader"]


class SegmentsDataSource(DataSource):
    """The topics in a broker's data folder as rows, read from its files and not through the broker.

    `spark.read.format("ottla-segments").option("subscribe", "topic").load("DATA_DIR")`, of a stopped broker, of a copy
    of its folder, or of a running one, up to what it had written. It reads what a read_committed consumer would. Driver
    and executors must see the folder under the same path.
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
        return SegmentsReader(options)


class _ScanTask(InputPartition):
    """One scan, as it is pickled to an executor."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan


class SegmentsReader(DataSourceReader):
    """Plans a scan on the driver and reads its parts on the executors."""

    def __init__(self, options: SegmentOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        # Here, because executors need not wait for what only planning imports.
        from ottla.pipeline.segments.planner import plan

        return [_ScanTask(scan) for scan in plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._rows(partition.scan) if isinstance(partition, _ScanTask) else iter(())

    def _rows(self, scan: Scan) -> Iterator[Any]:
        source = self._options.source
        decoder = RecordDecoder(
            *scan.partition,
            include_headers=source.include_headers,
            columns=self._options.columns,
            check_crcs=source.client.check_crcs,
        )
        try:
            for content in read_piece(RealDisk(), scan.piece, scan.start, scan.end):
                begin = int.from_bytes(content[:8], "big")
                aborted = [entry[:2] for entry in scan.aborted if entry[2] >= begin]
                yield from decoder.decode(content, scan.start, scan.end, aborted)
        except FileNotFoundError as error:
            raise StoreError(
                f"{error.filename} is gone: the broker that uses the folder has rewritten or removed it since the read "
                "was planned. Run the query again, or read a copy of the folder."
            ) from error
        except (StorageError, OSError) as error:
            raise StoreError(
                f"Partition {scan.partition} cannot be read from {scan.piece.data_path}: {error}. `ottla fsck` says "
                "what is wrong with the store."
            ) from error
