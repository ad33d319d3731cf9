"""A shop's nightly jobs on Spark, without a jar: each takes what has come since the last night, and ends.

    paid       orders joined with their payments, which come up to an hour later, into a table
    revenue    what was sold in each ten minutes, written back into a topic exactly once
    newest     the newest price of each item, by foreachBatch

Each is a function that starts its query; `nightly` runs all of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.pipeline.source import OttlaDataSource

ORDER = "id BIGINT, item STRING, total DOUBLE, at TIMESTAMP"
PAYMENT = "order_id BIGINT, method STRING, at TIMESTAMP"
PRICE = "item STRING, price DOUBLE"


class Shop:
    """The topics of one broker, and the folder in which tables and checkpoints are."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._broker = {"kafka.bootstrap.servers": bootstrap}
        spark.dataSource.register(OttlaDataSource)

    def paid(self) -> StreamingQuery:
        """Both sides are kept until the other one can no longer come: an hour, and what comes late."""
        orders = self._read("orders", ORDER).withWatermark("at", "10 minutes").withColumnRenamed("at", "ordered_at")
        payments = self._read("payments", PAYMENT).withWatermark("at", "10 minutes").withColumnRenamed("at", "paid_at")
        paid = orders.join(
            payments,
            F.expr("id = order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"),
        )
        rows = paid.select("id", "item", "total", "method", "ordered_at", "paid_at")
        return self._nightly(rows, "paid").format("parquet").start(str(self.folder / "paid"))

    def revenue(self) -> StreamingQuery:
        """A window is sent once, when the watermark has passed its end; readers of committed records see it once."""
        sold = (
            self._read("orders", ORDER)
            .withWatermark("at", "10 minutes")
            .groupBy(F.window("at", "10 minutes"))
            .agg(F.sum("total").alias("total"), F.count(F.lit(1)).alias("orders"))
        )
        rows = sold.selectExpr(
            "CAST(window.start AS STRING) AS key",
            "to_json(struct(window.start AS start, total, orders)) AS value",
        )
        return self._nightly(rows, "revenue").format("ottla").options(**self._broker, topic="revenue").start()

    def newest(self) -> StreamingQuery:
        """A batch may be repeated: the table of the night is written whole, beside the one before, and then counts."""
        table = self.folder / "newest"

        def merge(batch: DataFrame, batch_id: int) -> None:
            if (table / f"batch-{batch_id}" / "_SUCCESS").exists():
                return
            rows = batch.select("item", "price", "partition", "offset")
            before = newest_table(table)
            if before is not None:
                rows = rows.unionByName(batch.sparkSession.read.parquet(str(before)))
            last = rows.groupBy("item").agg(F.max_by(F.struct("price", "partition", "offset"), "offset").alias("last"))
            last.select("item", "last.*").coalesce(1).write.mode("overwrite").parquet(str(table / f"batch-{batch_id}"))

        return self._nightly(self._read("prices", PRICE), "newest").foreachBatch(merge).start()

    def nightly(self) -> None:
        """All jobs, one after the other; what one raises ends the night."""
        for job in (self.paid, self.revenue, self.newest):
            job().awaitTermination()

    def _read(self, topic: str, schema: str) -> DataFrame:
        records = (
            self.spark.readStream.format("ottla")
            .options(**self._broker, subscribe=topic, startingOffsets="earliest")
            .option("kafka.isolation.level", "read_committed")
            .load()
        )
        value = F.from_json(F.col("value").cast("string"), schema).alias("value")
        rows = records.select(value, "partition", "offset").where("value IS NOT NULL")
        return rows.select("value.*", "partition", "offset")

    def _nightly(self, rows: DataFrame, name: str) -> DataStreamWriter:
        checkpoint = str(self.folder / "checkpoints" / name)
        return rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)


def newest_table(folder: Path) -> Path | None:
    """The table that was written last, and whole."""
    whole = [path.parent for path in folder.glob("batch-*/_SUCCESS")]
    return max(whole, key=lambda path: int(path.name.removeprefix("batch-")), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bootstrap")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName("shop").getOrCreate()
    Shop(spark, arguments.bootstrap, arguments.folder).nightly()


if __name__ == "__main__":
    main()
