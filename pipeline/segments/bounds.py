"""Conditions of a query that say which scans can be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ottla.pipeline.client import TopicPartition
from ottla.pipeline.source.ranges import OffsetRange

__all__ = ["NO_BOUNDS", "Bounds", "bounds_of"]

_FIRST_MS: Final = -(1 << 63)
_LAST_OFFSET: Final = (1 << 63) - 1


class Bounds(NamedTuple):
    """What every wanted row is within; None for topics and partitions of all kinds.

    Rows outside them may be read all the same: Spark leaves them out.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    last_offset: int = _LAST_OFFSET
    not_before_ms: int = _FIRST_MS

    def may_have(self, partition: TopicPartition) -> bool:
        """Say whether rows of a partition can be within them."""
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def within(self, wanted: OffsetRange) -> OffsetRange:
        """The part of a range that is within them, perhaps empty."""
        return wanted._replace(start=max(wanted.start, self.first_offset), end=min(wanted.end, self.last_offset + 1))


NO_BOUNDS: Final = Bounds()


def bounds_of(filters: Iterable[Any]) -> Bounds:
    """What Spark's filters, all of which hold, say of topic, partition, offset and time; others are passed over.

    They are `pyspark.sql.datasource.Filter`, which Spark has since 4.1.
    """
    bounds = NO_BOUNDS
    for each in filters:
        narrow = _NARROWING.get((type(each).__name__, getattr(each, "attribute", None)))
        if narrow is not None:
            bounds = narrow(bounds, each.value)
    return bounds


def _topics(bounds: Bounds, names: Iterable[str]) -> Bounds:
    wanted = frozenset(names)
    return bounds._replace(topics=wanted if bounds.topics is None else wanted & bounds.topics)


def _partitions(bounds: Bounds, numbers: Iterable[int]) -> Bounds:
    wanted = frozenset(numbers)
    return bounds._replace(partitions=wanted if bounds.partitions is None else wanted & bounds.partitions)


def _from_offset(bounds: Bounds, offset: int) -> Bounds:
    return bounds._replace(first_offset=max(bounds.first_offset, offset))


def _to_offset(bounds: Bounds, offset: int) -> Bounds:
    return bounds._replace(last_offset=min(bounds.last_offset, offset))


def _at_offsets(bounds: Bounds, offsets: Iterable[int | None]) -> Bounds:
    wanted = [offset for offset in offsets if offset is not None]  # no row has the offset NULL
    return _to_offset(_from_offset(bounds, min(wanted)), max(wanted)) if wanted else bounds


def _not_before(bounds: Bounds, time: datetime) -> Bounds:
    if time.tzinfo is None:
        return bounds
    # Records' times are whole milliseconds: rounded down, this is no later than the query's.
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    return bounds._replace(not_before_ms=max(bounds.not_before_ms, milliseconds))


_NARROWING: Final[dict[tuple[str, Any], Callable[[Bounds, Any], Bounds]]] = {
    ("EqualTo", ("topic",)): lambda bounds, name: _topics(bounds, [name]),
    ("In", ("topic",)): _topics,
    ("EqualTo", ("partition",)): lambda bounds, number: _partitions(bounds, [number]),
    ("In", ("partition",)): _partitions,
    ("EqualTo", ("offset",)): lambda bounds, offset: _at_offsets(bounds, [offset]),
    ("In", ("offset",)): _at_offsets,
    ("GreaterThan", ("offset",)): lambda bounds, offset: _from_offset(bounds, offset + 1),
    ("GreaterThanOrEqual", ("offset",)): _from_offset,
    ("LessThan", ("offset",)): lambda bounds, offset: _to_offset(bounds, offset - 1),
    ("LessThanOrEqual", ("offset",)): _to_offset,
    ("EqualTo", ("timestamp",)): _not_before,
    ("GreaterThan", ("timestamp",)): _not_before,
    ("GreaterThanOrEqual", ("timestamp",)): _not_before,
}
