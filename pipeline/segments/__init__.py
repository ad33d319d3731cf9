"""`format("ottla-segments")`: a store's files in Spark, past the broker."""

from ottla.pipeline.extra import needing

with needing("spark"):
    from ottla.pipeline.segments.source import SegmentsDataSource

__all__ = ["SegmentsDataSource"]
