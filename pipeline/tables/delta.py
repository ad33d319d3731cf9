"""Tables of Delta Lake: each batch is one commit, which carries the number of the batch."""

# ruff: noqa: SLF001 - pyspark's gateway to the JVM has no public name

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

__all__ = ["DeltaSink"]

SMALL_SIZE_BYTES: Final = 64 * 1024 * 1024
"""Files below it on average are worth being put together."""

_TYPE_WIDENING: Final = "delta.enableTypeWidening"
_APP_ID: Final = "spark.databricks.delta.write.txnAppId"
_VERSION: Final = "spark.databricks.delta.write.txnVersion"
_AUTO_RESET: Final = "spark.databricks.delta.write.txnVersion.autoReset.enabled"


class DeltaSink:
    """Implements Sink. Delta itself leaves out a commit whose application and version it has: Kafka's idempotence."""

    def __init__(
        self, spark: SparkSession, path: str, partition_by: Sequence[str] = (), compact_files: int = 16
    ) -> None:
        self.path = path
        self._compact_files = compact_files
        self._spark = spark
        self._partition_by = list(partition_by)

    @staticmethod
    def is_available(spark: SparkSession) -> bool:
        """Whether the session has Delta's classes and its extension."""
        extensions = spark.conf.get("spark.sql.extensions", "") or ""
        if "DeltaSparkSessionExtension" not in extensions:
            return False
        loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
        try:
            loader.loadClass("org.apache.spark.sql.delta.DeltaLog")
        except Exception:  # noqa: BLE001 - the gateway wraps what Java throws
            return False
        return True

    def recover(self) -> None:
        """A commit of Delta is there or not."""

    def has_rows(self) -> bool:
        schema = self._schema()
        return schema is not None and not self._spark.read.format("delta").load(self.path).isEmpty()

    def append(self, rows: DataFrame, app_id: str, batch_id: int) -> None:
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.option("txnAppId", app_id).option("txnVersion", batch_id).save(self.path)

    def upsert(self, rows: DataFrame, key: str, deleted: str, app_id: str, batch_id: int) -> None:
        self._fit(rows.drop(deleted).schema)
        session = rows.sparkSession
        columns = [name for name in rows.columns if name != deleted]
        assignments = ", ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in columns)
        names = ", ".join(_quoted(name) for name in columns)
        values = ", ".join(f"s.{_quoted(name)}" for name in columns)
        view = f"ottla_batch_{app_id.replace('-', '')}"
        rows.createOrReplaceTempView(view)
        with _transaction(session, app_id, batch_id):
            session.sql(
                f"MERGE INTO delta.`{self.path}` t USING {view} s ON t.{_quoted(key)} = s.{_quoted(key)} "
                f"WHEN MATCHED AND s.{_quoted(deleted)} THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {assignments} "
                f"WHEN NOT MATCHED AND NOT s.{_quoted(deleted)} THEN INSERT ({names}) VALUES ({values})"
            ).collect()
        session.catalog.dropTempView(view)

    def widens(self, kept: DataType, given: DataType) -> bool:
        if self._schema() is None:
            return False
        properties = self._spark.sql(f"DESCRIBE DETAIL delta.`{self.path}`").select("properties").collect()[0][0]
        return str(properties.get(_TYPE_WIDENING)).lower() == "true"

    def compact(self) -> None:
        detail = self._spark.sql(f"DESCRIBE DETAIL delta.`{self.path}`").select("numFiles", "sizeInBytes").collect()[0]
        if detail.numFiles >= self._compact_files and detail.sizeInBytes < detail.numFiles * SMALL_SIZE_BYTES:
            self._spark.sql(f"OPTIMIZE delta.`{self.path}`").collect()

    def close(self) -> None:
        """Nothing is held: a commit finds out itself whether another was quicker."""

    def _schema(self) -> StructType | None:
        tables = self._spark._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]
        if not tables.isDeltaTable(self._spark._jsparkSession, self.path):
            return None
        return self._spark.read.format("delta").load(self.path).schema

    def _fit(self, schema: StructType) -> None:
        """Create the table, or give it the columns that it lacks: a commit without rows."""
        if self._schema() == schema:
            return
        writer = self._spark.createDataFrame([], schema).write.format("delta").mode("append")
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.option("mergeSchema", "true").save(self.path)


@contextmanager
def _transaction(session: SparkSession, app_id: str, batch_id: int) -> Iterator[None]:
    """The session's commands are this batch's; the batches of each query have a session of their own."""
    session.conf.set(_APP_ID, app_id)
    session.conf.set(_VERSION, str(batch_id))
    session.conf.set(_AUTO_RESET, "false")
    try:
        yield
    finally:
        session.conf.unset(_APP_ID)
        session.conf.unset(_VERSION)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
