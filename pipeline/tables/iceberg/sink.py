"""Batches of Spark's into an Iceberg table: the executors write its files, the driver commits them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, DecimalType, StructType

from ottla.pipeline.tables.iceberg.catalogue import open_catalogue
from ottla.pipeline.tables.iceberg.expiry import expire
from ottla.pipeline.tables.iceberg.table import IcebergTable, Rewrite
from ottla.pipeline.tables.iceberg.workers import FILE_COLUMN, KeyReader, Rewriter, Writer
from ottla.pipeline.values.arrow_types import arrow_schema, arrow_type

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

__all__ = ["IcebergSink"]

_FILES: Final = f"{FILE_COLUMN} BINARY"
_SCANS: Final = "number INT, scans BINARY"


class IcebergSink:
    """Implements Sink. An upsert rewrites the files that hold rows of its keys (copy on write)."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Mapping[str, str],
        path: str,
        partition_by: Sequence[str] = (),
        compact_files: int = 16,
    ) -> None:
        self.path = path
        self._spark = spark
        self._compact_files = compact_files
        self._table = IcebergTable(open_catalogue(settings), path, partition_by)

    def recover(self) -> None:
        """A commit of Iceberg is there or not."""

    def has_rows(self) -> bool:
        table = self._table.load()
        return table is not None and next(iter(table.scan().plan_files()), None) is not None

    def append(self, rows: DataFrame, app_id: str, batch_id: int) -> None:
        self._table.fitted(arrow_schema(rows.schema))
        self._table.commit((app_id, batch_id), lambda table: ((), self._write(table, rows)))

    def upsert(self, rows: DataFrame, key: str, deleted: str, app_id: str, batch_id: int) -> None:
        columns = rows.drop(deleted)
        self._table.fitted(arrow_schema(columns.schema))
        # Its keys are looked for in the table, and then it is written.
        rows.persist(StorageLevel.MEMORY_AND_DISK)

        def change(table: Table) -> Rewrite:
            removed, kept = self._without(table, rows, key)
            return removed, [*kept, *self._write(table, rows.where(~F.col(deleted)).drop(deleted))]

        try:
            self._table.commit((app_id, batch_id), change)
        finally:
            rows.unpersist()

    def widens(self, kept: DataType, given: DataType) -> bool:
        """Iceberg has more digits for a decimal, but no more of them after the point."""
        return not (isinstance(kept, DecimalType) and isinstance(given, DecimalType) and kept.scale != given.scale)

    def compact(self) -> None:
        self._table.compact(self._compact_files, self._put_together)
        table = self._table.load()
        if table is not None:
            expire(table)

    def close(self) -> None:
        """Nothing is held: a commit finds out itself whether another was quicker."""

    def _write(self, table: Table, rows: DataFrame) -> list[DataFile]:
        writer = Writer(_for_workers(table), table.io, arrow_schema(rows.schema))
        return _collected(rows.mapInArrow(writer, _FILES))

    def _without(self, table: Table, rows: DataFrame, key: str) -> Rewrite:
        """The files that hold rows of these keys, and what their other rows were written into."""
        scans = _scans_between(table, key, rows.agg(F.min(key), F.max(key)).collect()[0])
        if not scans:
            return (), ()
        kind = next(field.dataType for field in rows.schema.fields if field.name == key)
        held = StructType().add("number", "integer").add("held", kind)
        reader = KeyReader(_for_workers(table), table.io, key, arrow_type(kind))
        wanted = rows.select(F.col(key).alias("held"))
        files = self._as_rows([[scan] for scan in scans])
        found = (
            files.mapInArrow(reader, held)
            .join(wanted, "held")
            .groupBy("number")
            .agg(F.collect_set("held").alias("keys"))
        )
        # It says which files are concerned, and that must stay so while they are rewritten.
        found.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            touched = [scans[row.number].file for row in found.select("number").collect()]
            rewriter = Rewriter(_for_workers(table), table.io, key)
            kept = _collected(files.join(found, "number").mapInArrow(rewriter, _FILES)) if touched else []
        finally:
            found.unpersist()
        return touched, kept

    def _put_together(self, table: Table, groups: list[list[FileScanTask]]) -> list[DataFile]:
        return _collected(self._as_rows(groups).mapInArrow(Rewriter(_for_workers(table), table.io), _FILES))

    def _as_rows(self, groups: Sequence[Sequence[FileScanTask]]) -> DataFrame:
        """Files for the executors to read, each group in a task of its own."""
        rows = [(number, bytearray(pickle.dumps(list(group)))) for number, group in enumerate(groups)]
        return self._spark.createDataFrame(rows, _SCANS).repartition(len(rows), "number")


def _scans_between(table: Table, key: str, ends: Sequence[Any]) -> list[FileScanTask]:
    """The files that may hold keys between these two, by what the table knows of each."""
    from pyiceberg.expressions import And, GreaterThanOrEqual, LessThanOrEqual

    least, most = (bytes(end) if isinstance(end, bytearray) else end for end in ends)
    return list(table.scan(And(GreaterThanOrEqual(key, least), LessThanOrEqual(key, most))).plan_files())


def _for_workers(table: Table) -> Any:
    """What a worker needs to know of the table, which is not its history."""
    nothing: dict[str, Any] = {
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "refs": {},
        "current_snapshot_id": None,
    }
    return table.metadata.model_copy(update=nothing)


def _collected(files: DataFrame) -> list[DataFile]:
    return [pickle.loads(bytes(row[FILE_COLUMN])) for row in files.collect()]
