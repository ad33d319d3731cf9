"""Runs of records that are in flight: the words in which the state of a share partition is told."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ottla.coordinator.share.state import DeliveryState, StateBatch


class Span(NamedTuple):
    """The first and the last offset of a record batch of the log."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Records that a member now holds, and for the how-manieth time they were delivered."""

    first: int
    last: int
    delivery_count: int

    @property
    def record_count(self) -> int:
        return self.last - self.first + 1

    def without(self, span: Span) -> list[Acquired]:
        """The parts of it outside a span."""
        parts = (
            self._replace(last=min(self.last, span.first - 1)),
            self._replace(first=max(self.first, span.last + 1)),
        )
        return [part for part in parts if part.first <= part.last]


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of records: one type for all, or one for each. The types are those of the wire."""

    first: int
    last: int
    types: list[int]

    def without_before(self, offset: int) -> Acknowledgement:
        """The part about records from an offset on."""
        if self.first >= offset:
            return self
        types = self.types[offset - self.first :] if len(self.types) > 1 else self.types
        return Acknowledgement(offset, self.last, types)


class Cause(Enum):
    """Why a record is a dead letter, in Kafka's words."""

    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class Dead(NamedTuple):
    """Records that are to go to the group's dead-letter queue."""

    first: int
    last: int
    delivery_count: int
    cause: Cause


class Lock:
    """A member's lock on records that it acquired together. This one has no end: subclasses give it a time.

    `held` counts the records that are still under it; `has_expired` is set by the end of its time.
    """

    __slots__ = ("has_expired", "held", "member_id")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.held = 0
        self.has_expired = False

    def take(self, count: int) -> None:
        """So many records more are under it."""
        self.held += count

    def drop(self, count: int) -> None:
        """So many records are no longer under it."""
        self.held -= count
        assert self.held >= 0
        if not self.held:
            self.free()

    def free(self) -> None:
        """Nothing is under it any more, or was ever put there."""

    def time_out(self) -> None:
        """Its time is over."""
        self.has_expired = True


class Run:
    """Neighbouring records of one state. While `before` is set, a change of it is on its way to be stored."""

    __slots__ = ("before", "delivery_count", "first", "is_rejected", "last", "lock", "state")

    def __init__(
        self, first: int, last: int, state: DeliveryState, delivery_count: int, lock: Lock | None = None
    ) -> None:
        assert first <= last
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.lock = lock
        #: The lock that it goes back to if its change cannot be stored.
        self.before: Lock | None = None
        #: Whether a member wants it to be archived: nobody knows any more after a restart.
        self.is_rejected = False

    def __repr__(self) -> str:
        pending = "" if self.before is None else " pending"
        return f"<{self.first}-{self.last} {self.state.name}{pending} x{self.delivery_count}>"

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether it may be given to a member."""
        return self.state is DeliveryState.AVAILABLE and self.before is None

    @property
    def is_over(self) -> bool:
        """Whether it will never be delivered again, and that is stored."""
        return self.before is None and self.state.is_terminal

    def acquire(self, lock: Lock) -> None:
        """Deliver it once more, to the lock's member."""
        self.state = DeliveryState.ACQUIRED
        self.delivery_count += 1
        self.put_under(lock)

    def put_under(self, lock: Lock) -> None:
        """It is under this lock from now on."""
        self.lock = lock
        lock.take(self.count)

    def unlock(self) -> None:
        """It is under no lock any more."""
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.drop(self.count)

    def reject(self, *, is_rejected: bool) -> None:
        """Whether its member rejects it."""
        self.is_rejected = is_rejected

    def begin(self, state: DeliveryState) -> None:
        """Begin a change to this state, which has to be stored: `end` follows."""
        assert self.lock is not None
        self.before, self.state = self.lock, state

    def end(self) -> Lock:
        """The change was stored, or could not be. Returns the lock under which it was begun."""
        assert self.before is not None
        before, self.before = self.before, None
        return before

    def become(self, state: DeliveryState) -> None:
        """Be in this state at once, and not rejected: no change of it is begun."""
        self.state = state
        self.is_rejected = False

    def cut(self, first: int) -> Run:
        """Split it before an offset; returns the second part. Nothing of it may be on its way."""
        assert self.first < first <= self.last
        assert self.before is None, "what is being stored stays whole"
        second = Run(first, self.last, self.state, self.delivery_count, self.lock)
        second.is_rejected = self.is_rejected
        self.last = first - 1
        return second


class Batch:
    """Records that were acquired together for the first time: `runs` cover it without a gap."""

    __slots__ = ("first", "last", "runs")

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = list(runs)
        self.first = self.runs[0].first
        self.last = self.runs[-1].last

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def isolate(self, run: Run, first: int, last: int) -> Run:
        """Make what a run of this batch has of [first, last] a run of its own; what is before keeps the object."""
        position = bisect_left(self.runs, run.first, key=_first_of)
        assert self.runs[position] is run
        if run.first < first:
            run = run.cut(first)
            position += 1
            self.runs.insert(position, run)
        if run.last > last:
            self.runs.insert(position + 1, run.cut(last + 1))
        return run

    def join(self) -> None:
        """Put neighbours together that are over and were so in the same way."""
        joined = [self.runs[0]]
        for run in self.runs[1:]:
            former = joined[-1]
            if (
                run.is_over
                and former.is_over
                and run.state is former.state
                and run.delivery_count == former.delivery_count
            ):
                former.last = run.last
            else:
                joined.append(run)
        self.runs = joined


class Transition:
    """Changes of state that were begun together, and are stored or taken back together."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def state_batches(self) -> list[StateBatch]:
        """The changes as they are stored, in order, neighbours of one kind as one."""
        return joined_batches(self.runs)


def joined_batches(runs: Iterable[Run]) -> list[StateBatch]:
    """Runs as they are stored, in order, neighbours of one kind as one."""
    batches: list[StateBatch] = []
    for run in runs:
        batch = StateBatch(run.first, run.last, int(run.state), run.delivery_count)
        if batches and batches[-1].last_offset + 1 == batch.first_offset and batches[-1][2:] == batch[2:]:
            batches[-1] = batches[-1]._replace(last_offset=batch.last_offset)
        else:
            batches.append(batch)
    return batches


def _first_of(run: Run) -> int:
    return run.first
