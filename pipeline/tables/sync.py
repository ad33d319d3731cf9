"""One topic kept in one table: a streaming query whose every batch is decoded, judged and written once.

Runs as `ottla table sync job.toml`, or on a cluster as `spark-submit …/ottla/pipeline/tables/sync.py job.toml`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ottla.pipeline.interpreter import share_shipped_code
from ottla.pipeline.tables import preflight
from ottla.pipeline.tables.checkpoint import Checkpoint, Identity
from ottla.pipeline.tables.compaction import Compaction
from ottla.pipeline.tables.config import JobConfig, TableConfig
from ottla.pipeline.tables.errors import ConfigError
from ottla.pipeline.tables.progress import Counts
from ottla.pipeline.tables.rows import DEAD_LETTER_COLUMNS, DELETED, judged, reserved_names, table_rows
from ottla.pipeline.tables.sinks import Sink, open_sink
from ottla.pipeline.values.avro_values import AvroFormat
from ottla.pipeline.values.decoder import REASON, Decoder, RawDecoder
from ottla.pipeline.values.formats import Format
from ottla.pipeline.values.json_schema_values import JsonSchemaFormat
from ottla.pipeline.values.json_values import JsonDecoder
from ottla.pipeline.values.protobuf_values import ProtobufFormat
from ottla.pipeline.values.registered import RegisteredDecoder
from ottla.pipeline.values.registry import open_schemas, schema_of_file
from ottla.pipeline.values.schemas import UnsupportedSchemaError
from ottla.pipeline.values.succession import SchemaChangeError, check_columns, succeed

__all__ = ["TableSync", "source"]

_FORMATS: Final[Mapping[str, type[Format]]] = {
    "avro": AvroFormat,
    "protobuf": ProtobufFormat,
    "json-schema": JsonSchemaFormat,
}


class TableSync:
    """The job of one table. `failure` is what a batch raised here, which Spark wraps beyond recognition."""

    def __init__(self, spark: SparkSession, job: JobConfig, table: TableConfig) -> None:
        self.table = table
        self.failure: Exception | None = None
        self.counts: dict[int, Counts] = {}
        self.last_batch = -1
        self.checkpoint = Checkpoint(spark, table.checkpoint)
        self.sink: Sink = open_sink(spark, job, table)
        self._dead_letters = open_sink(spark, job, table, dead_letters=True)
        self._spark = spark
        self._job = job
        self._cluster = preflight.connect(job)  # Batches are written by a thread of their own.
        self._identity: Identity | None = None
        self._decoder: Decoder | None = None
        self._kept_schema: StructType | None = None
        self._compactions = Compaction(self.sink, table.compact_every_batches)
        self._dead_compactions = Compaction(self._dead_letters, table.compact_every_batches)

    def start(self, identity: Identity) -> StreamingQuery:
        """Start the query, under an identity that `preflight` has checked."""
        self._identity, self.failure = identity, None
        preflight.check_source(self._job.source, self.checkpoint)
        for sink in (self.sink, self._dead_letters):
            sink.recover()
        self._kept_schema = self.checkpoint.schema()
        self._decoder = _decoder(self._job, self.table, self._kept_schema, self.sink)
        trigger: dict[str, Any] = {"availableNow": True}
        if self._job.trigger == "continuous":
            trigger = {"processingTime": self._job.interval}
        stream = source(self._spark, self._job, self.table)
        return (
            stream.writeStream.queryName(self.table.name)
            .option("checkpointLocation", self.checkpoint.spark_folder)
            .trigger(**trigger)
            .foreachBatch(self._keep_failure)
            .start()
        )

    def finish(self) -> None:
        """After an availableNow query: put small files together, if batches came since the last time."""
        self._compactions.finish()
        self._dead_compactions.finish()

    def close(self) -> None:
        """Leave the tables and the broker."""
        self.sink.close()
        self._dead_letters.close()
        if self._cluster is not None:
            self._cluster.close()

    def _keep_failure(self, rows: DataFrame, batch_id: int) -> None:
        try:
            self._write(rows, batch_id)
        except Exception as error:
            self.failure = error
            raise

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        assert self._identity is not None
        assert self._decoder is not None
        app_id = self._identity.app_id
        is_raw = self.table.decode == "raw" and self.table.key is None
        with ExitStack() as keeping:
            # What is learned from is decoded next: it is kept until then, so that it comes from the broker once.
            with _kept(rows, self._decoder.learns) as read:
                self._decoder.learn(read)
                self._keep_schema(self._decoder.schema or StructType())
                decoded = judged(self._decoder.decode(read), self.table)
                # It is counted and then written, once or twice: decoding it each time would cost more than keeping it.
                decoded = keeping.enter_context(_kept(decoded, not is_raw))
                counts = _counted(decoded)
            preflight.check_topic(self._cluster, self.table, self._identity, self.checkpoint)
            if counts.rows:
                self._write_rows(decoded, app_id, batch_id)
            if counts.dead:
                self._dead_letters.append(self._dead(decoded), app_id, batch_id)
        self.counts[batch_id] = counts
        self.last_batch = batch_id
        if counts.rows:
            self._compactions.written()
        if counts.dead:
            self._dead_compactions.written()

    def _keep_schema(self, schema: StructType) -> None:
        """Remember it if it is new, learned or given: what follows is compared with it, at every start."""
        if schema != self._kept_schema:
            self.checkpoint.keep_schema(schema)
            self._kept_schema = schema

    def _write_rows(self, decoded: DataFrame, app_id: str, batch_id: int) -> None:
        assert self._decoder is not None
        rows = table_rows(decoded, self.table, self._decoder.schema or StructType())
        if self.table.mode == "upsert":
            assert self.table.key is not None
            self.sink.upsert(rows, self.table.key, DELETED, app_id, batch_id)
        else:
            self.sink.append(rows, app_id, batch_id)

    def _dead(self, decoded: DataFrame) -> DataFrame:
        dead = decoded.where(F.col(REASON).isNotNull())
        if isinstance(self._decoder, JsonDecoder):
            dead = self._decoder.explained(dead)
        return dead.select(*DEAD_LETTER_COLUMNS)


def source(spark: SparkSession, job: JobConfig, table: TableConfig) -> DataFrame:
    """The topic as a stream, by the source without a jar or by Spark's connector."""
    if job.source == "ottla":
        from ottla.pipeline.source import OttlaDataSource

        share_shipped_code(spark.sparkContext)
        spark.dataSource.register(OttlaDataSource)
    options = {
        "kafka.bootstrap.servers": job.bootstrap,
        **{f"kafka.{name}": value for name, value in job.kafka.items()},
        "subscribe": table.topic,
        "startingOffsets": table.start,
        "failOnDataLoss": "true" if table.on_data_loss == "fail" else "false",
        "maxOffsetsPerTrigger": str(table.max_offsets_per_batch),
        "includeHeaders": "true" if table.decode == "raw" else "false",
        **table.options,
    }
    # What a transaction aborted never was.
    options.setdefault("kafka.isolation.level", "read_committed")
    return spark.readStream.format(job.source).options(**options).load()


def _decoder(job: JobConfig, table: TableConfig, kept: StructType | None, sink: Sink) -> Decoder:
    reserved = reserved_names(table)
    if table.decode == "raw":
        return RawDecoder()
    if table.decode in _FORMATS:
        return _registered_decoder(job, table, kept, reserved)
    schema = kept
    if (given := _given(table)) is not None:
        try:
            check_columns(given, reserved)
            schema = succeed(kept or StructType(), given, evolves=table.evolves, widens=sink.widens)
        except SchemaChangeError as error:
            raise SchemaChangeError(f"Table {table.name!r}: {error}") from None
    return JsonDecoder(schema, evolves=table.evolves, reserved=reserved)


def _registered_decoder(
    job: JobConfig, table: TableConfig, kept: StructType | None, reserved: frozenset[str]
) -> RegisteredDecoder:
    kind = _FORMATS[table.decode]()
    schemas = open_schemas(table.registry, job.registry_login) if table.registry else None
    if table.schema_file is not None:
        schema = schema_of_file(Path(table.schema_file), kind.name.upper())
    else:
        assert schemas is not None
        schema = schemas.latest(f"{table.topic}-value")
    if schema.kind != kind.name.upper():
        raise ConfigError(f"The schema of topic {table.topic!r} is {schema.kind}, but decode is {table.decode}.")
    try:
        return RegisteredDecoder(
            kind, kept, schemas=schemas, file_schema=schema, evolves=table.evolves, reserved=reserved
        )
    except UnsupportedSchemaError as error:
        raise ConfigError(f"The schema of topic {table.topic!r} makes no table: {error}") from None


def _given(table: TableConfig) -> StructType | None:
    text = table.schema
    if table.schema_file is not None:
        try:
            text = Path(table.schema_file).read_text()
        except OSError as error:
            raise ConfigError(f"The schema file {table.schema_file} cannot be read: {error.strerror}.") from error
    if text is None:
        return None
    try:
        kind = StructType.fromDDL(text.strip())
    except Exception as error:
        raise ConfigError(
            f"The schema of topic {table.topic!r} is not Spark DDL, such as 'id BIGINT, name STRING': "
            f"{str(error).splitlines()[0]}"
        ) from error
    if not isinstance(kind, StructType):
        raise ConfigError(f"The schema of topic {table.topic!r} is {kind.simpleString()}, not a list of columns.")
    return kind


@contextmanager
def _kept(rows: DataFrame, wanted: bool) -> Iterator[DataFrame]:
    """The rows, which are kept from their first use on if that is wanted."""
    if not wanted:
        yield rows
        return
    held = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield held
    finally:
        held.unpersist()


def _counted(decoded: DataFrame) -> Counts:
    row = decoded.agg(F.count(F.lit(1)).alias("all"), F.count(REASON).alias("dead")).collect()[0]
    return Counts(rows=row["all"] - row["dead"], dead=row["dead"])


if __name__ == "__main__":
    from ottla.pipeline.tables.runner import main

    sys.exit(main(sys.argv[1:]))
