"""Ranges of offsets, cut into tasks as Spark's Kafka connector cuts them."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ottla.pipeline.client import TopicPartition

__all__ = ["OffsetRange", "split"]


class OffsetRange(NamedTuple):
    """The offsets from `start` up to and without `end` of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def split(ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """The ranges that are not empty: a task each, or more where `minPartitions` or `maxRecordsPerPartition` asks so.

    First no range is larger than `max_records`; if these are fewer than `min_partitions`, larger ones are cut into more
    parts than small ones, so that there are about as many. Offsets are counted, not records.
    """
    parts = [part for part in ranges if part.size > 0]
    if max_records is not None:
        parts = [piece for part in parts for piece in _cut(part, -(-part.size // max_records))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(part.size for part in parts)
    return [piece for part in parts for piece in _cut(part, max(1, round(part.size / total * min_partitions)))]


def _cut(part: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, part.size)
    bounds = [part.start + part.size * index // count for index in range(count + 1)]
    return [OffsetRange(part.partition, low, high) for low, high in pairwise(bounds)]
