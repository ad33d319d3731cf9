"""Which parts of which files or objects a scan reads."""

from __future__ import annotations

from ottla.pipeline.segments.address import is_object_store
from ottla.pipeline.segments.bounds import NO_BOUNDS, Bounds
from ottla.pipeline.segments.options import SegmentOptions
from ottla.pipeline.segments.scan import Scan, StoredTopics
from ottla.pipeline.source.resolver import OffsetResolver

__all__ = ["plan"]


def plan(options: SegmentOptions, bounds: Bounds = NO_BOUNDS) -> list[Scan]:
    """The scans of a read, each of about `max_partition_bytes`, without what lies outside the bounds.

    Raises StoreError if the store cannot be read, TopicError if a topic is not in it, OptionError and DataLossError for
    offsets that do not fit.
    """

    def scans(topics: StoredTopics) -> list[Scan]:
        ranges = OffsetResolver(options.source, topics.offsets).batch(topics.partitions)
        wanted = [bounds.within(each) for each in ranges if bounds.may_have(each.partition)]
        return [scan for each in wanted if each.size > 0 for scan in topics.scans(each, bounds.not_before_ms)]

    # Each is loaded only where it is needed: the one for object stores takes Trio along.
    if is_object_store(options.path):
        from ottla.pipeline.segments.objects.topics import with_objects

        return with_objects(options, scans)
    from ottla.pipeline.segments.files.topics import with_files

    return with_files(options, scans)
