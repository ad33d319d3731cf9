"""`format("ottla-segments")`: a store's files in Spark, past the broker."""

from ottla.pipeline.segments.source import SegmentsDataSource

__all__ = ["SegmentsDataSource"]
