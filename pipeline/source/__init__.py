"""`format("ottla")`: topics in Spark without a jar, by Spark's Python Data Source API."""

from ottla.pipeline.extra import needing

with needing("spark"):
    from ottla.pipeline.source.source import OttlaDataSource

__all__ = ["OttlaDataSource"]
