"""The columns of a table's row: the value's fields, the key, and what is known of the record."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from ottla.pipeline.tables.config import DATE_COLUMN, METADATA_COLUMNS, TableConfig
from ottla.pipeline.values.decoder import DATA, REASON

__all__ = ["DEAD_LETTER_COLUMNS", "DELETED", "judged", "reserved_names", "table_rows"]

DELETED = "__ottla_deleted"
DEAD_LETTER_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", REASON)

_RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp")
_SIZES_BYTES = {"int": 4, "long": 8}


def reserved_names(table: TableConfig) -> frozenset[str]:
    """Names, in lower case, that the value's fields may not have."""
    names = {DELETED}
    if table.metadata:
        names |= {*METADATA_COLUMNS, DATE_COLUMN}
    if table.key:
        names.add(table.key.lower())
    return frozenset(names)


def judged(rows: DataFrame, table: TableConfig) -> DataFrame:
    """Decoded rows, with a reason also where the key, or its absence, keeps the record out of the table."""
    reason: Column = F.col(REASON)
    if table.mode == "upsert":
        reason = F.coalesce(reason, F.when(F.col("key").isNull(), F.lit("the record has no key to upsert by")))
    elif table.decode != "raw":
        reason = F.coalesce(reason, F.when(F.col("value").isNull(), F.lit("the record has no value")))
    if table.key is not None:
        reason = F.coalesce(reason, _key_problem(table.key_type))
    return rows.withColumn(REASON, reason)


def table_rows(rows: DataFrame, table: TableConfig, schema: StructType) -> DataFrame:
    """The rows without a reason, in the columns of the table; of each key the last one, for upserts."""
    good = rows.where(F.col(REASON).isNull())
    if table.mode == "upsert":
        good = _last_of_each_key(good)
    columns = [F.col(f"{DATA}.`{field.name}`").alias(field.name) for field in schema.fields]
    if table.key is not None:
        columns.insert(0, _key(table.key_type).alias(table.key))
    if table.decode == "raw" and "headers" in rows.columns:
        columns.append(F.col("headers"))
    if table.metadata:
        columns += [F.col(name).alias(f"_{name}") for name in _RECORD_COLUMNS]
        if DATE_COLUMN in table.partition_by:
            columns.append(_day("timestamp").alias(DATE_COLUMN))
    if table.mode == "upsert":
        columns.append(F.col("value").isNull().alias(DELETED))
    return good.select(*columns)


def _last_of_each_key(rows: DataFrame) -> DataFrame:
    """A key has one partition, where the last offset wins; where partitions were added, the later timestamp."""
    in_partition = Window.partitionBy("key", "partition").orderBy(F.col("offset").desc())
    over_all = Window.partitionBy("key").orderBy(F.col("timestamp").desc(), F.col("partition").desc())
    rank = "__ottla_rank"
    last = rows.withColumn(rank, F.row_number().over(in_partition)).where(F.col(rank) == 1)
    return last.withColumn(rank, F.row_number().over(over_all)).where(F.col(rank) == 1).drop(rank)


def _day(name: str) -> Column:
    """The day in UTC, whatever the session's time zone: a partition must not depend on who writes it."""
    return F.date_from_unix_date(F.floor(F.unix_millis(name) / 86_400_000).cast("int"))


def _key(kind: str) -> Column:
    key = F.col("key")
    if kind == "string":
        return F.try_validate_utf8(key.cast("string"))
    if kind == "binary":
        return key
    # Big-endian and signed, as Kafka's own serializers write numbers.
    signed = F.conv(F.hex(key), 16, -10).cast("long")
    if kind == "long":
        return signed
    return F.when(signed >= 2**31, signed - 2**32).otherwise(signed).cast("int")


def _key_problem(kind: str) -> Column:
    key = F.col("key")
    if kind == "string":
        wrong = F.try_validate_utf8(key.cast("string")).isNull()
        return F.when(key.isNotNull() & wrong, F.lit("the key is not UTF-8"))
    size = _SIZES_BYTES.get(kind)
    if size is None:
        return F.lit(None).cast("string")
    return F.when(key.isNotNull() & (F.length(key) != size), F.lit(f"the key is not {size} bytes long"))
