"""What a task of a scan is, and where its topics lie: in the files of brokers, or in an object store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.pipeline.client import TopicPartition
from ottla.pipeline.source.positions import Offsets
from ottla.pipeline.source.ranges import OffsetRange

__all__ = ["Chunk", "Scan", "StoredTopics"]


class Chunk(NamedTuple):
    """Whole batches, and the aborted transactions that reach into them: (producer id, first offset)."""

    content: memoryview
    aborted: Sequence[tuple[int, int]]


class Scan(Protocol):
    """One task, as it is sent to an executor: of a partition, the offsets in `range`."""

    @property
    def range(self) -> OffsetRange:
        """What is wanted; chunks may begin before it and end after it."""

    @property
    def is_checked(self) -> bool:
        """Whether chunks were compared with checksums already."""

    def chunks(self) -> Iterator[Chunk]:
        """The batches, in order. StoreError if they cannot be read."""


class StoredTopics(Protocol):
    """The partitions that were asked for, and what is known of them without reading their records."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that there are, in order."""

    def offsets(self, wanted: Offsets) -> Offsets:
        """As `Cluster.offsets`: of `EARLIEST`, `LATEST` or a time the offset, -1 if no record is so late."""

    def scans(self, wanted: OffsetRange, not_before_ms: int) -> Iterator[Scan]:
        """The tasks that read a range. What has no record of that time or later is left out."""
