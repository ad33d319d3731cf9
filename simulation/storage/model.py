"""What one log must hold: plain Python, one change after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Batch", "LogModel", "Row", "Seen"]

Row = tuple[bytes, bytes | None]
"""Key and value; None is a tombstone."""
Seen = tuple[int, bytes, bytes | None]
"""A record as readers see it: offset, key, value."""


@dataclass(slots=True, eq=False)
class Batch:
    """An appended batch. A marker has no rows and says whether it commits."""

    base_offset: int
    rows: tuple[Row, ...]
    epoch: int
    producer_id: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    commits: bool | None = None
    timestamp_ms: int = -1
    size_bytes: int = 0

    @property
    def is_marker(self) -> bool:
        return self.commits is not None

    @property
    def last_offset(self) -> int:
        return self.base_offset + max(len(self.rows), 1) - 1

    def records(self) -> Iterator[Seen]:
        return ((self.base_offset + index, key, value) for index, (key, value) in enumerate(self.rows))


class _Transaction(NamedTuple):
    """Its batches, the offset of its marker (-1 while it is open) and whether that commits it."""

    batches: list[Batch]
    marker_offset: int
    commits: bool


@dataclass
class LogModel:
    """One log after some changes. A log that was deleted is a new one without records."""

    log_start: int = 0
    log_end: int = 0
    batches: list[Batch] = field(default_factory=list)
    sure_from: int = 0
    """What was below when producers were last read from the disk need not be known of a transaction begun there."""

    def copy(self) -> LogModel:
        return LogModel(self.log_start, self.log_end, list(self.batches), self.sure_from)

    # Changes.

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.log_end = batch.last_offset + 1

    def truncate(self, offset: int) -> None:
        if offset < self.log_start:
            self.restart_at(offset)
            return
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.log_end = min(self.log_end, offset)
        self.sure_from = self.log_start

    def move_start(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)
        self.log_end = max(self.log_end, offset)

    def restart_at(self, offset: int) -> None:
        self.batches = []
        self.log_start = self.log_end = self.sure_from = offset

    def delete(self) -> None:
        self.restart_at(0)

    # What follows.

    def live_batches(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.last_offset >= self.log_start]

    def records(self, start: int = 0, end: int = 1 << 62) -> list[Seen]:
        """Every record in [start, end) that is not below the log's start, compacted away or not."""
        start = max(start, self.log_start)
        return [
            record
            for batch in self.batches
            if batch.last_offset >= start and batch.base_offset < end
            for record in batch.records()
            if start <= record[0] < end
        ]

    def latest_epoch(self) -> int:
        live = self.live_batches()
        return live[-1].epoch if live else -1

    def last_sequences(self) -> dict[int, int]:
        """The last sequence of each producer that has a batch in the log."""
        return {
            batch.producer_id: batch.base_sequence + len(batch.rows) - 1
            for batch in self.live_batches()
            if batch.producer_id >= 0 and not batch.is_marker
        }

    def transactions(self) -> list[_Transaction]:
        found: list[_Transaction] = []
        pending: dict[int, list[Batch]] = {}
        for batch in self.batches:
            if batch.commits is not None:
                if batches := pending.pop(batch.producer_id, None):
                    found.append(_Transaction(batches, batch.base_offset, batch.commits))
            elif batch.is_transactional:
                pending.setdefault(batch.producer_id, []).append(batch)
        return found + [_Transaction(batches, -1, commits=False) for batches in pending.values()]

    def fates(self) -> tuple[set[int], set[int]]:
        """The offsets of the records that were aborted, and of those that are undecided."""
        aborted: set[int] = set()
        undecided: set[int] = set()
        for transaction in self.transactions():
            if not transaction.commits:
                target = undecided if transaction.marker_offset < 0 else aborted
                for batch in transaction.batches:
                    target.update(range(batch.base_offset, batch.last_offset + 1))
        return aborted, undecided

    def stable_bounds(self, high_watermark: int) -> tuple[int, int]:
        """The range that the last stable offset must be in: one value, unless a transaction's start is unknown."""
        least = most = high_watermark
        for batches, marker_offset, _ in self.transactions():
            if 0 <= marker_offset < max(high_watermark, self.log_start):
                continue
            least = min(least, batches[0].base_offset)
            known = [batch.base_offset for batch in batches if batch.last_offset >= self.sure_from]
            most = min(most, known[0] if known else most)
        return (
            min(high_watermark, max(least, self.log_start)),
            min(high_watermark, max(most, self.log_start)),
        )

    def superseded(self, below: int) -> set[int]:
        """The offsets of committed records that a later one of their key, also committed and below this, overtakes."""
        aborted, undecided = self.fates()
        latest: dict[bytes, int] = {}
        found: set[int] = set()
        for offset, key, _ in self.records(end=below):
            if offset in aborted or offset in undecided:
                continue
            if key in latest:
                found.add(latest[key])
            latest[key] = offset
        return found

    def removable(self, *, tombstones_go: bool) -> set[int]:
        """The offsets of the records that compaction may have removed by now."""
        aborted, _ = self.fates()
        tombstones = {offset for offset, _, value in self.records() if value is None} if tombstones_go else set()
        return aborted | self.superseded(self.log_end) | tombstones

    def removed(self, cleaned_end: int) -> set[int]:
        """The offsets of the records that must be gone once a pass has finished up to there."""
        aborted, _ = self.fates()
        return {offset for offset in aborted if offset < cleaned_end} | self.superseded(cleaned_end)

    def misses(self, found: Iterable[Seen], start: int, end: int, *, compacted: bool, tombstones_go: bool) -> str:
        """What is wrong with the records that were found in [start, end); empty if nothing is."""
        held, whole = list(found), self.records(start, end)
        if not compacted:
            return "" if held == whole else f"found {held}, expected {whole}"
        if sorted(record[0] for record in held) != [record[0] for record in held]:
            return f"not in order: {held}"
        if strange := set(held) - set(whole):
            return f"never were there: {sorted(strange)}"
        may_go = self.removable(tombstones_go=tombstones_go)
        lost = [record for record in whole if record[0] not in may_go and record not in set(held)]
        return f"lost: {lost}" if lost else ""
