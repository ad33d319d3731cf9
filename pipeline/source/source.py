"""The data source that Spark finds by the name `ottla`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.pipeline.decoder import arrow_schema, spark_schema
from ottla.pipeline.errors import OptionError
from ottla.pipeline.sink import BatchWriter, StreamWriter, parse_sink_options, shape_of
from ottla.pipeline.source.batch import BatchReader
from ottla.pipeline.source.options import SourceOptions, parse_options
from ottla.pipeline.source.stream import StreamReader

__all__ = ["OttlaDataSource", "require_own_schema", "require_schema"]


class OttlaDataSource(DataSource):
    """Topics as rows, without a jar: columns and options are those of Spark's Kafka connector.

    `spark.dataSource.register(OttlaDataSource)`, then `format("ottla")` after `spark.read`, `spark.readStream`,
    `df.write` or `df.writeStream`. It speaks to any broker that speaks Kafka's protocol; every executor needs
    `ottla[spark]` installed and speaks to the brokers itself.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return spark_schema(include_headers=headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options, is_stream=False)
        require_own_schema(schema, options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = parse_options(self.options, is_stream=True)
        require_own_schema(schema, options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("Save mode overwrite is not allowed for topics: write .mode('append').")
        options = parse_sink_options(self.options, is_stream=False)
        return BatchWriter(options, shape_of(schema, options.topic))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        # A topic only grows: output mode complete sends all rows again in each batch, as the connector does.
        options = parse_sink_options(self.options, is_stream=True)
        return StreamWriter(options, shape_of(schema, options.topic), schema)


def require_own_schema(schema: StructType, options: SourceOptions) -> None:
    """OptionError unless the schema is the source's own: Spark hands on whatever a user gave it."""
    require_schema(schema, arrow_schema(include_headers=options.include_headers))


def require_schema(schema: StructType, own: Any) -> None:
    """OptionError unless the schema is `own`, which is Arrow's."""
    if not _in_arrow(schema).equals(own):
        raise OptionError("This format has a schema of its own, as format('kafka') has: leave out .schema(...).")


def _in_arrow(schema: StructType) -> Any:
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before Spark 4.2 there is no other zone
        return to_arrow_schema(schema)
