"""The data source that Spark finds by the name `ottla-share`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from ottla.pipeline.errors import OptionError
from ottla.pipeline.share.options import parse_share_options
from ottla.pipeline.share.schema import share_arrow_schema, share_spark_schema
from ottla.pipeline.share.stream import ShareStreamReader
from ottla.pipeline.source.admission import HAS_READ_LIMITS
from ottla.pipeline.source.source import require_schema

__all__ = ["ShareDataSource"]


class ShareDataSource(DataSource):
    """The records that a share group delivers, as a stream: a queue, worked on by Spark.

    `spark.dataSource.register(ShareDataSource)`, then `spark.readStream.format("ottla-share")`. It needs Spark 4.2,
    which tells a source where a batch begins, and so that the one before is committed.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla-share"

    def schema(self) -> str:
        headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return share_spark_schema(include_headers=headers)

    def reader(self, schema: StructType) -> Any:
        raise OptionError("A share group delivers a stream: write spark.readStream, or read the topic as 'ottla'.")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        if not HAS_READ_LIMITS:
            raise OptionError(
                "format('ottla-share') needs Spark 4.2: earlier ones do not say when a batch is committed."
            )
        options = parse_share_options(self.options)
        require_schema(schema, share_arrow_schema(include_headers=options.include_headers))
        return ShareStreamReader(options)
