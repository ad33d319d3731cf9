"""The other way: the rows of a table, or of a query, become records of a topic, with keys and headers.

Without a jar the executors send as `format("ottla")` does; with Spark's connector they send through that.
Either way a task that Spark repeats sends its rows again, as Spark's own connector does: at least once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, StringType

from ottla.kproto.records import Compression
from ottla.pipeline.client import ClientSettings, Cluster, parse_bootstrap_servers, security_of
from ottla.pipeline.errors import TopicError
from ottla.pipeline.sink import Shape, SinkOptions, shape_of, write_idempotent
from ottla.pipeline.tables.config import DATE_COLUMN, METADATA_COLUMNS, JobConfig, TableConfig
from ottla.pipeline.tables.errors import ConfigError, TableError
from ottla.pipeline.tables.session import session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Publication", "publish", "records", "run", "value_columns"]


@dataclass(frozen=True, slots=True)
class Publication:
    """What is sent where. Exactly one of `table` and `query` is given.

    `key`, `value` and `headers` name columns; without `value` the row, less its key and headers, is sent as JSON.
    `batch_bytes` is how large a batch may be before compression; None is what the topic takes, or the connector's own.
    """

    topic: str
    bootstrap: str
    table: str | None = None
    query: str | None = None
    format: str = "delta"
    key: str | None = None
    value: str | None = None
    headers: tuple[str, ...] = ()
    source: str = "ottla"
    batch_bytes: int | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How to connect, by the names of Java's clients."""

    @property
    def client(self) -> ClientSettings:
        """For this package's own client. Reads files; OptionError says what is wrong."""
        return ClientSettings(parse_bootstrap_servers(self.bootstrap), security=security_of(self.kafka))


def run(publication: Publication, spark_settings: Mapping[str, str]) -> int:
    """Send it all, and return how many rows it was. PipelineError says what is wrong."""
    # A query says by delta.`path` that it needs Delta.
    with_delta = publication.format == "delta" if publication.query is None else "delta." in publication.query
    table = TableConfig(topic=publication.topic, path="", format="delta" if with_delta else "parquet")
    job = JobConfig(publication.bootstrap, (table,), source=publication.source, spark=spark_settings)
    return publish(session(job), publication)


def publish(spark: SparkSession, publication: Publication) -> int:
    """As `run`, in a session that is there."""
    cluster = Cluster(publication.client)
    try:
        if not cluster.partitions([publication.topic]):
            raise TopicError(
                f"There is no topic {publication.topic!r} at {publication.bootstrap}: create it, or correct its name."
            )
    finally:
        cluster.close()
    rows = records(_rows(spark, publication), publication)
    if publication.source == "ottla":
        options = SinkOptions(
            publication.client, publication.topic, compression=Compression.LZ4, batch_bytes=publication.batch_bytes
        )
        sender = _Sender(options, shape_of(rows.schema, publication.topic))
        return int(sum(row.sent for row in rows.mapInArrow(sender, "sent BIGINT").collect()))
    count = rows.count()
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", publication.bootstrap)
    for name, value in publication.kafka.items():
        writer = writer.option(f"kafka.{name}", value)
    if publication.batch_bytes is not None:
        writer = writer.option("kafka.batch.size", str(publication.batch_bytes))
    writer.option("topic", publication.topic).option("includeHeaders", "true").save()
    return count


def records(rows: DataFrame, publication: Publication) -> DataFrame:
    """The rows as records: columns key, value and headers, as Spark's connector takes them."""
    for name in filter(None, (publication.key, publication.value, *publication.headers)):
        if name not in rows.columns:
            raise ConfigError(f"There is no column {name!r}: there are {', '.join(rows.columns)}.")
    rest = [F.col(f"`{name}`") for name in value_columns(rows.columns, publication)]
    value = F.to_json(F.struct(*rest)).cast("binary") if publication.value is None else _bytes(rows, publication.value)
    key = F.lit(None).cast("binary") if publication.key is None else _bytes(rows, publication.key)
    headers = [F.struct(F.lit(name).alias("key"), _bytes(rows, name).alias("value")) for name in publication.headers]
    no_headers = F.lit(None).cast("array<struct<key:string,value:binary>>")
    return rows.select(
        key.alias("key"), value.alias("value"), (F.array(*headers) if headers else no_headers).alias("headers")
    )


def value_columns(columns: Sequence[str], publication: Publication) -> list[str]:
    """The columns that make the value: none that is the key or a header.

    Nor, of a table as a whole, those that say where in its topic a record stood: they would say it of another topic,
    and a table of that one has columns of the same names.
    """
    used = {publication.key, *publication.headers}
    if publication.query is None:
        used |= {*METADATA_COLUMNS, DATE_COLUMN}
    return [name for name in columns if name not in used]


def _bytes(rows: DataFrame, name: str) -> Column:
    """A column as bytes: bytes and text as they are, structures as JSON, all else as text."""
    kind = rows.schema[name].dataType
    column = F.col(f"`{name}`")
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StringType) or kind.simpleString().partition("<")[0] not in ("struct", "array", "map"):
        return column.cast("string").cast("binary")
    return F.to_json(column).cast("binary")


def _rows(spark: SparkSession, publication: Publication) -> DataFrame:
    try:
        if publication.query is not None:
            return spark.sql(publication.query)
        assert publication.table is not None
        return spark.read.format(publication.format).load(publication.table)
    except Exception as error:
        what = publication.table or "the query"
        raise TableError(f"{what} cannot be read: {str(error).splitlines()[0]}") from error


class _Sender:
    """Runs on the executors: each task sends its rows as the sink does, and says how many they were."""

    def __init__(self, options: SinkOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        written = write_idempotent(self._options, self._shape, context.partitionId(), batches)
        yield pa.RecordBatch.from_pydict({"sent": pa.array([written.rows], pa.int64())})
