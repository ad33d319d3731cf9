"""The progress of a node's part of the mirror, and what is left, for metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replica.partition import Partition


class MirrorProgress:
    """Counts copied records and bytes, and keeps the last known end of each partition at the source."""

    def __init__(self) -> None:
        self.copied_bytes = 0
        self.committed_offsets = 0
        #: Whether the source has answered the last request.
        self.is_reachable = False
        #: The reasons for which topics are not mirrored, by name.
        self.problems: dict[str, str] = {}
        self._source_ends: dict[Partition, int] = {}

    def count_copied(self, size_bytes: int) -> None:
        self.copied_bytes += size_bytes

    def count_committed(self, offsets: int) -> None:
        self.committed_offsets += offsets

    def reached(self, *, is_reachable: bool) -> None:
        """Whether the source answered now."""
        self.is_reachable = is_reachable

    def set_problems(self, problems: dict[str, str]) -> None:
        """Why topics are not mirrored now."""
        self.problems = problems

    def heard(self, partition: Partition, source_end: int) -> None:
        """Note the end of a partition at the source."""
        self._source_ends[partition] = source_end

    def keep_only(self, partitions: set[Partition]) -> None:
        """Forget the partitions that this node no longer copies."""
        self._source_ends = {it: end for it, end in self._source_ends.items() if it in partitions}

    def lag_by_topic(self) -> Mapping[str, int]:
        """Records that the source has and this cluster does not show yet."""
        lags: dict[str, int] = defaultdict(int)
        for partition, end in self._source_ends.items():
            lags[partition.topic] += max(0, end - partition.log.high_watermark)
        return lags

    @property
    def partitions(self) -> int:
        """How many partitions this node copies."""
        return len(self._source_ends)
