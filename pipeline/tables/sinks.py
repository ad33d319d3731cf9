"""What a table must be able to do so that a job can keep it: take each batch once."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from ottla.pipeline.tables.config import JobConfig, TableConfig
from ottla.pipeline.tables.delta import DeltaSink
from ottla.pipeline.tables.errors import TableError
from ottla.pipeline.tables.iceberg.sink import IcebergSink
from ottla.pipeline.tables.parquet import ParquetSink

__all__ = ["Sink", "open_sink"]


class Sink(Protocol):
    """A table that batches are written into, in the order of their numbers, by one writer at a time.

    A batch is repeated when the writer was killed before Spark noted that it is done: what the table has already is
    not written again. `app_id` tells one checkpoint's numbers from another's.
    """

    path: str

    def recover(self) -> None:
        """Finish what a killed writer left half done, before anything else is written."""

    def has_rows(self) -> bool:
        """Whether somebody wrote into the table before."""

    def append(self, rows: DataFrame, app_id: str, batch_id: int) -> None:
        """Add all rows of a batch."""

    def upsert(self, rows: DataFrame, key: str, deleted: str, app_id: str, batch_id: int) -> None:
        """Replace the rows of the same key, add those of new keys, remove those whose column `deleted` is true.

        `rows` has each key once. TableError if the format cannot.
        """

    def widens(self, kept: DataType, given: DataType) -> bool:
        """Whether a column may become wider in this way, and the table's readers follow."""

    def compact(self) -> None:
        """Put small files together, if there are many."""

    def close(self) -> None:
        """Let other jobs write into the table."""


def open_sink(spark: SparkSession, job: JobConfig, table: TableConfig, *, dead_letters: bool = False) -> Sink:
    """A table, or that of its dead letters. TableError if its format needs what this session lacks."""
    path, partition_by = (table.dead_letters, ()) if dead_letters else (table.path, table.partition_by)
    if table.format == "parquet":
        return ParquetSink(spark, path, partition_by, table.compact_files)
    if table.format == "iceberg":
        return IcebergSink(spark, job.iceberg, path, partition_by, table.compact_files)
    if not DeltaSink.is_available(spark):
        raise TableError(
            "This Spark session lacks Delta Lake: let spark.jars.packages name io.delta:delta-spark_4.2_2.13:4.4.0 and "
            "io.delta:delta-storage:4.4.0, as docs/spark.md shows, or keep the table as parquet or iceberg."
        )
    return DeltaSink(spark, path, partition_by, table.compact_files)
