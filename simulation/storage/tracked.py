"""A log of the engine beside the model of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ottla.simulation.storage.engine import LogConfig, PartitionLog
from ottla.simulation.storage.history import Event, StoreHistory
from ottla.simulation.storage.model import Batch, LogModel, Seen

__all__ = ["Topic", "TrackedLog"]


@dataclass(eq=False, slots=True)
class Topic:
    """A topic of one name and id; `number` is in every value that is written to it."""

    number: int
    name: str
    topic_id: UUID
    config: LogConfig
    syncs_each: bool
    """Whether what is acknowledged has been synced."""


class TrackedLog:
    """One log in one life of the process."""

    def __init__(self, topic: Topic, partition: int, log: PartitionLog, history: StoreHistory, model: LogModel) -> None:
        self.topic = topic
        self.partition = partition
        self.key = (topic.topic_id, partition)
        self.log = log
        self.history = history
        self.model = model
        self.was_compacted = topic.config.compact
        self.is_follower = False
        #: A truncation is under way, so that nobody may append; a deletion has begun, so that nobody does anything.
        self.is_held = False
        self.is_deleting = False
        #: An operation has failed half-way: only a restart will tell.
        self.is_lost = False
        #: How many changes that a reader may or may not see were begun, and how many have ended.
        self.begun = 0
        self.ended = 0
        self.moves_under_way = 0
        #: Bytes that a truncation has voided may count as the log's.
        self.was_cut = False
        self.unacknowledged: deque[Event] = deque()
        self.read_end = -1
        self.seen_at = history.now
        self.opened_at_start = log.log_start_offset
        self.high_watermark = log.high_watermark
        self.last_stable_offset = log.last_stable_offset

    def __repr__(self) -> str:
        return f"{self.topic.name}#{self.topic.number}-{self.partition}"

    @property
    def is_usable(self) -> bool:
        return not self.is_deleting and not self.is_lost

    @property
    def is_writable(self) -> bool:
        return self.is_usable and not self.is_held

    def forget_watermarks(self) -> None:
        """The high watermark and last stable offset may go back."""
        self.high_watermark = self.last_stable_offset = 0

    @property
    def is_steady(self) -> bool:
        """No change is under way that a reader may or may not see."""
        return self.begun == self.ended and self.is_usable

    def belongs_here(self, record: Seen) -> bool:
        """Whether a record was written to this log, now or before."""
        value = record[2]
        return value is None or value.startswith(self.value_prefix)

    @property
    def value_prefix(self) -> bytes:
        return b"%d/%d/" % (self.topic.number, self.partition)

    def appended(self, batch: Batch) -> None:
        def append(model: LogModel) -> None:
            model.append(batch)

        self.unacknowledged.append(self.history.add(self.key, append, batch))
        append(self.model)

    def begin(self, change: Callable[[LogModel], None], *, since: int | None = None) -> Event:
        """A change has begun, which takes its time."""
        self.begun += 1
        return self.history.begin(self.key, change, since=since)

    def finish(self, event: Event, *, is_written: bool = True) -> None:
        """A change is done, and written unless there was nothing to do."""
        self.ended += 1
        event.change(self.model)
        self.history.finish(event, is_written=is_written)
        end = self.model.log_end
        self.unacknowledged = deque(
            each for each in self.unacknowledged if each.batch is not None and each.batch.last_offset < end
        )

    def acknowledge(self) -> None:
        """What the engine reports as flushed counts: a killed process must find it again, or even a dead machine."""
        flushed_end = self.log.flushed_end_offset
        while self.unacknowledged:
            event = self.unacknowledged[0]
            assert event.batch is not None
            if event.batch.last_offset >= flushed_end:
                return
            self.unacknowledged.popleft()
            self.history.is_written(event.end, synced=self.topic.syncs_each)
