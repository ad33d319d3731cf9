"""From what the options ask for to exact offsets, whoever knows them: a broker, or the files of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.pipeline.client import EARLIEST, LATEST, TopicPartition
from ottla.pipeline.errors import DataLossError, OptionError
from ottla.pipeline.source.options import SourceOptions
from ottla.pipeline.source.positions import Offsets, Positions
from ottla.pipeline.source.ranges import OffsetRange

__all__ = ["OffsetResolver"]


class OffsetResolver:
    """Where a read begins and ends in each partition.

    `find` is `Cluster.offsets`, or does the same: of `EARLIEST`, `LATEST` or a time for each partition it makes the
    offset, -1 where no record is so late.
    """

    def __init__(self, options: SourceOptions, find: Callable[[Offsets], Offsets]) -> None:
        self._options = options
        self._find = find

    def ends(self, partitions: Iterable[TopicPartition], end: int) -> Offsets:
        """The earliest or the latest offsets; the latest are the last stable ones under read_committed."""
        return self._find(dict.fromkeys(partitions, end))

    def starting(self, partitions: list[TopicPartition]) -> Offsets:
        """Where the options say that each partition is begun."""
        positions = self._options.starting
        timestamps = self._timestamps("startingOffsetsByTimestamp", positions, partitions)
        if timestamps is None:
            return self._resolve("startingOffsets", positions, partitions)
        found = self._find(timestamps)
        if none := [part for part in partitions if found[part] < 0]:
            if not self._options.latest_if_no_timestamp:
                raise OptionError(
                    f"Partition {none[0]} has no record at or after {timestamps[none[0]]} ms: start earlier, or set "
                    "startingOffsetsByTimestampStrategy to latest."
                )
            found |= self.ends(none, LATEST)
        return found

    def ending(self, partitions: list[TopicPartition]) -> Offsets:
        """Where the options say that each partition is ended; the latest offset where no record is so late."""
        positions = self._options.ending
        timestamps = self._timestamps("endingOffsetsByTimestamp", positions, partitions)
        if timestamps is None:
            return self._resolve("endingOffsets", positions, partitions)
        found = self._find(timestamps)
        return found | self.ends([part for part in partitions if found[part] < 0], LATEST)

    def batch(self, partitions: list[TopicPartition]) -> list[OffsetRange]:
        """What a batch read reads: checked to be there, so that it fails now rather than in a task."""
        starting, ending = self.starting(partitions), self.ending(partitions)
        earliest, latest = self.ends(partitions, EARLIEST), self.ends(partitions, LATEST)
        ranges = []
        for part in partitions:
            start, end = starting[part], ending[part]
            if start < earliest[part]:
                self.lost(f"Partition {part} begins at offset {earliest[part]}, but {start} is where the read starts")
                start = earliest[part]
            if max(start, end) > latest[part]:
                self.lost(f"Partition {part} ends at offset {latest[part]}, but {max(start, end)} was asked for")
                end = min(end, latest[part])
            ranges.append(OffsetRange(part, start, end))
        return ranges

    def lost(self, what: str) -> None:
        """DataLossError, unless the options allow loss."""
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}: retention may have removed records, or the topic was created again. Change the offsets, or "
                "set failOnDataLoss to false to read what is there."
            )

    def _timestamps(self, name: str, positions: Positions, partitions: list[TopicPartition]) -> Offsets | None:
        if positions.everywhere_ms is not None:
            return dict.fromkeys(partitions, positions.everywhere_ms)
        if positions.timestamps_ms is not None:
            _require_all(name, positions.timestamps_ms, partitions)
        return positions.timestamps_ms

    def _resolve(self, name: str, positions: Positions, partitions: list[TopicPartition]) -> Offsets:
        if positions.offsets is None:
            return self.ends(partitions, positions.everywhere)
        _require_all(name, positions.offsets, partitions)
        found = dict(positions.offsets)
        for end in (EARLIEST, LATEST):
            found |= self.ends([part for part, offset in positions.offsets.items() if offset == end], end)
        return found


def _require_all(name: str, given: Offsets, partitions: list[TopicPartition]) -> None:
    if set(given) == set(partitions):
        return
    wrong = sorted(set(given).symmetric_difference(partitions))
    what = "which is not read" if wrong[0] in given else "but must name it, with -2 for the earliest offset"
    verb = "names" if wrong[0] in given else "does not name"
    raise OptionError(f"Option {name} {verb} partition {wrong[0]}, {what}: name exactly the partitions that are read.")
