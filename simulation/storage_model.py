"""What the storage engine must hold: plain Python, one event after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Batch:
    """An appended batch, as the model knows it. A marker has no values and says whether it commits."""

    base_offset: int
    values: list[bytes]
    epoch: int
    producer_id: int = -1
    base_sequence: int = -1
    keys: list[bytes] = field(default_factory=list)
    is_transactional: bool = False
    commits: bool | None = None

    @property
    def is_marker(self) -> bool:
        return self.commits is not None

    @property
    def last_offset(self) -> int:
        return self.base_offset + max(len(self.values), 1) - 1

    def records(self, log_start: int) -> list[tuple[int, bytes]]:
        return [
            (self.base_offset + index, value)
            for index, value in enumerate(self.values)
            if self.base_offset + index >= log_start
        ]


@dataclass
class Transactions:
    """How the transactions of a partition ended: of each decided batch, and where the open ones began."""

    committed: dict[int, bool] = field(default_factory=dict)
    """By the base offset of the batch."""
    open_since: dict[int, int] = field(default_factory=dict)
    """By producer id."""


Found = tuple[int, int, list[tuple[int, bytes]]]
"""Where a log begins and ends, and its records."""


@dataclass
class PartitionModel:
    """The state of one partition after some events."""

    log_start: int = 0
    log_end: int = 0
    batches: list[Batch] = field(default_factory=list)

    def records(self) -> list[tuple[int, bytes]]:
        return [record for batch in self.batches for record in batch.records(self.log_start)]

    def latest(self) -> dict[int, bytes]:
        """The last record of each key, of those that count: what compaction must keep."""
        committed = self.transactions().committed
        by_key: dict[bytes, tuple[int, bytes]] = {}
        for batch in self.batches:
            if not batch.is_transactional or committed.get(batch.base_offset, False):
                first = len(batch.values) - len(batch.records(self.log_start))
                by_key.update(zip(batch.keys[first:], batch.records(self.log_start), strict=False))
        return dict(by_key.values())

    def fits(self, found: Found, *, compacting: bool) -> bool:
        """Whether what was found is this state; of a compacted log the records that were overtaken may be missing."""
        start, end, records = found
        if (start, end) != (self.log_start, self.log_end):
            return False
        if not compacting:
            return records == self.records()
        whole, held = dict(self.records()), dict(records)
        return held.items() <= whole.items() and self.latest().items() <= held.items() and sorted(held) == list(held)

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.log_end = batch.last_offset + 1

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.log_end = min(self.log_end, offset)

    def move_start(self, offset: int) -> None:
        self.log_start = offset

    def restart_at(self, offset: int) -> None:
        self.batches = []
        self.log_start = self.log_end = offset

    def live_batches(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.last_offset >= self.log_start]

    def latest_epoch(self) -> int:
        live = self.live_batches()
        return live[-1].epoch if live else -1

    def last_sequences(self) -> dict[int, int]:
        return {
            batch.producer_id: batch.base_sequence + len(batch.values) - 1
            for batch in self.live_batches()
            if batch.producer_id >= 0 and not batch.is_marker
        }

    def transactions(self) -> Transactions:
        result = Transactions()
        pending: dict[int, list[int]] = {}
        for batch in self.batches:
            if batch.commits is not None:
                result.open_since.pop(batch.producer_id, None)
                result.committed.update(dict.fromkeys(pending.pop(batch.producer_id, []), batch.commits))
            elif batch.is_transactional:
                result.open_since.setdefault(batch.producer_id, batch.base_offset)
                pending.setdefault(batch.producer_id, []).append(batch.base_offset)
        return result


Event = tuple[int, Callable[[PartitionModel], None]]
State = dict[int, PartitionModel]


def state_after(partitions: int, events: list[Event]) -> State:
    """The partitions' state after these events."""
    state = {partition: PartitionModel() for partition in range(partitions)}
    for partition, apply in events:
        apply(state[partition])
    return state
