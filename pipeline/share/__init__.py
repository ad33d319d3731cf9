"""`format("ottla-share")`: a share group as a queue that Spark works on, by Spark's Python Data Source API."""

from ottla.pipeline.extra import needing

with needing("spark"):
    from ottla.pipeline.share.outcomes import Outcomes
    from ottla.pipeline.share.source import ShareDataSource

__all__ = ["Outcomes", "ShareDataSource"]
