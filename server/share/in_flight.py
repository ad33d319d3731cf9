"""The records of a share partition that are in flight: which are held, by whom, and which are to be delivered next.

A state machine without clocks, disks and tasks. What it promises (Kafka's SharePartition):

- A record has one holder at a time, and is given to nobody while a change of its state is being stored.
- `start_offset` never goes back; all below it is over: acknowledged, archived, or not there.
- A record is delivered `max_delivery_count` times at most, then it is archived. Records that fail often are delivered
  in ever smaller pieces, the last time alone, so that one bad record does not take others with it.

    AVAILABLE ──acquire──▶ ACQUIRED ──accept──▶ ACKNOWLEDGED
        ▲                     │  │
        └──release, timeout───┘  ├──gap────────────────────────────▶ ARCHIVED
                                 └──reject, too many deliveries──▶ [ARCHIVING]──written──▶ ARCHIVED

- ARCHIVING exists in groups with a dead-letter queue (`has_dead_letters`): the owner of this object writes the records
  in `dead`, then calls `archive_dead`. The state is stored, so that the next leader goes on with it.

Unlike Kafka's it keeps runs of records in one state, not one entry for each record once two of a batch differ; what a
restart knows nothing of is made available at once, where Kafka keeps a window of such gaps; and never are more than
`max_records` in flight, where Kafka takes the last record batch whole: it may hold a million records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.coordinator.share.state import DeliveryState, StateBatch
from ottla.server.share.errors import InvalidAcknowledgementError, InvalidRecordStateError
from ottla.server.share.records import Acquired, Batch, Cause, Dead, Lock, Run, Transition, joined_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from ottla.server.share.records import Acknowledgement, Span

B = TypeVar("B", Batch, Run)

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

"""Pieces of one kind that are acknowledged in less than 0.1 ms."""

_STATES: Final = {
    GAP: DeliveryState.ARCHIVED,
    ACCEPT: DeliveryState.ACKNOWLEDGED,
    RELEASE: DeliveryState.AVAILABLE,
    REJECT: DeliveryState.ARCHIVED,
}


class InFlight:
    """The records between `start_offset` and `next_offset`, the first one that was never fetched.

    `new_lock` makes the lock of what a member acquires.
    """

    def __init__(
        self,
        start_offset: int,
        stored: Iterable[StateBatch] = (),
        *,
        max_records: int,
        max_delivery_count: int,
        new_lock: Callable[[str], Lock] = Lock,
    ) -> None:
        """`stored` is what was stored of the records from the start offset on, in order."""
        self.start_offset = start_offset
        self.next_offset = start_offset
        self.max_records = max_records
        self.max_delivery_count = max_delivery_count
        #: Whether the group has a dead-letter queue.
        self.has_dead_letters = False
        self._new_lock = new_lock
        self._batches: list[Batch] = []
        self._may_redeliver = False
        for first, last, state, count in stored:
            if self.next_offset < first:
                # Nobody knows what became of these, if they are there at all.
                self._batches.append(Batch([Run(self.next_offset, first - 1, DeliveryState.AVAILABLE, 0)]))
            known = DeliveryState(state)
            if known is DeliveryState.ACQUIRED:
                known = DeliveryState.AVAILABLE
            self._batches.append(Batch([Run(first, last, known, count)]))
            self.next_offset = last + 1
            self._may_redeliver = True
        self._advance_start()

    def follow_config(self, *, max_records: int, max_delivery_count: int, has_dead_letters: bool) -> None:
        """The group's settings hold from now on."""
        self.max_records = max_records
        self.max_delivery_count = max_delivery_count
        self.has_dead_letters = has_dead_letters

    # What is there

    @property
    def count(self) -> int:
        """How many offsets are in flight."""
        return self.next_offset - self.start_offset if self._batches else 0

    def runs(self) -> Iterator[Run]:
        """All runs, in order; some may lie below the start offset."""
        for batch in self._batches:
            yield from batch.runs

    def delivery_complete_count(self) -> int:
        """How many records from the start offset on will not be delivered again (KIP-1226)."""
        start = self.start_offset
        return sum(
            run.last - max(run.first, start) + 1 for run in self.runs() if run.state.is_terminal and run.last >= start
        )

    def next_fetch_offset(self) -> int:
        """The next fetch offset: the first record that is available again, or the end of all that were fetched."""
        if self._may_redeliver:
            for run in self.runs():
                if run.is_available:
                    return run.first
            self._may_redeliver = False
        return self.next_offset

    def can_acquire(self) -> bool:
        """Whether a fetch may bring a member something: there is room, or something is available again."""
        return self.next_fetch_offset() != self.next_offset or self.count < self.max_records

    # Acquiring

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        spans: Sequence[Span],
        *,
        max_records: int,
        batch_size: int,
        is_strict: bool = False,
    ) -> list[Acquired]:
        """Give a member what it may have of the record batches that were fetched from `fetch_offset` on.

        `max_records` is a soft limit: whole record batches are given, unless `is_strict` (KIP-1206's record limit).
        New records are cut into pieces of about `batch_size`, at the bounds of record batches.
        """
        if not spans or max_records <= 0:
            return []
        limit, last = self._room(fetch_offset, max_records, spans[-1].last)
        if limit <= 0:
            return []
        self._archive_missing(fetch_offset, spans[0].first)
        first = max(spans[0].first, self.start_offset)
        lock = self._new_lock(member_id)
        acquisition = _Acquisition(self, lock, limit, is_strict=is_strict)
        overlapping = self._batches_between(first, last)
        for batch in overlapping:
            if not acquisition.acquire_again(batch, first, last):
                break
        if acquisition.left > 0:
            first_new = max(first, self.next_offset if self._batches else first)
            if overlapping:
                first_new = max(first_new, overlapping[-1].last + 1)
            if first_new <= last:
                acquisition.acquired += self._acquire_new(
                    lock, first_new, last, spans, acquisition.left, batch_size, is_strict=is_strict
                )
        if not lock.held:
            lock.free()
        return acquisition.acquired

    def _room(self, fetch_offset: int, max_records: int, last: int) -> tuple[int, int]:
        """How many records may be acquired, and up to which offset."""
        limit = min(max_records, self.max_records - self.count)
        if limit <= 0 and fetch_offset < self.next_offset:
            # There is no room for new records, but some that are in flight are available again.
            limit = min(max_records, self.next_offset - fetch_offset)
            last = min(last, self.next_offset - 1)
        return limit, last

    def _acquire_new(
        self, lock: Lock, first: int, last: int, spans: Sequence[Span], limit: int, batch_size: int, *, is_strict: bool
    ) -> list[Acquired]:
        if limit < last - first + 1:
            last = first + limit - 1
            if not is_strict:
                whole = next((span.last for span in spans if span.first <= last <= span.last), last)
                last = min(whole, max(last, first + self.max_records - self.count - 1))
        if not self._batches:
            self.start_offset = first
        acquired: list[Acquired] = []
        begin = first
        if not is_strict:
            for span in spans:
                if first < span.first <= last and span.first - begin >= batch_size:
                    acquired.append(self._append(lock, begin, span.first - 1))
                    begin = span.first
        acquired.append(self._append(lock, begin, last))
        return acquired

    def _append(self, lock: Lock, first: int, last: int) -> Acquired:
        assert first >= self.next_offset
        self._batches.append(Batch([Run(first, last, DeliveryState.ACQUIRED, 1, lock)]))
        self.next_offset = last + 1
        lock.take(last - first + 1)
        return Acquired(first, last, 1)

    def _archive_missing(self, fetch_offset: int, first_fetched: int) -> None:
        """Archive what was available and is not in the log any more: the fetch went past it."""
        if fetch_offset < first_fetched:
            self._archive(fetch_offset, first_fetched - 1, DeliveryState.AVAILABLE)
            self._advance_start()

    def archive_aborted(self, first: int, last: int) -> None:
        """Archive what was just acquired of a transaction that was aborted."""
        self._archive(first, last, DeliveryState.ACQUIRED)
        self._advance_start()

    def _archive(self, first: int, last: int, state: DeliveryState) -> None:
        for batch, run in self._runs_between(first, last):
            if run.state is state and run.before is None:
                part = batch.isolate(run, first, last)
                part.become(DeliveryState.ARCHIVED)
                part.unlock()
        for batch in self._batches_between(first, last):
            batch.join()

    # Acknowledging

    def acknowledge(
        self, member_id: str, acknowledgements: Iterable[Acknowledgement], *, may_renew: bool = True
    ) -> Transition:
        """Begin what a member says of records that it holds; `complete` ends it.

        Raises InvalidAcknowledgementError or InvalidRecordStateError, and then nothing has changed.
        """
        transition = Transition()
        for _ in self.acknowledging(transition, member_id, acknowledgements, may_renew=may_renew):
            pass
        return transition

    def acknowledging(
        self,
        transition: Transition,
        member_id: str,
        acknowledgements: Iterable[Acknowledgement],
        *,
        may_renew: bool = True,
    ) -> Generator[None, None, None]:
        """`acknowledge` in steps between which others may run: what was begun is as if it was being stored already.

        It is taken back if the steps are closed before their end.
        """
        renewed = self._new_lock(member_id)
        # As if it held one more: it is not given up, and so ends, though what was put under it is over before the rest.
        renewed.take(1)
        is_whole = False
        try:
            for acknowledgement in acknowledgements:
                if acknowledgement.last < self.start_offset:
                    continue
                self._require_in_flight(acknowledgement)
                # So there are no more pieces than records are in flight, whatever a member says of others.
                for first, last, kind in _pieces(acknowledgement.without_before(self.start_offset)):
                    for batch, run in self._runs_between(first, last):
                        self._require_held(run, member_id, may_be=may_renew or kind != RENEW)
                        part = batch.isolate(run, first, last)
                        if kind == RENEW:
                            self._move_lock(part, renewed)
                        else:
                            part.reject(is_rejected=kind == REJECT)
                            self._begin(transition, part, _STATES[kind])
                    yield
            is_whole = True
        finally:
            if not is_whole:
                self.complete(transition, stored=False)
            renewed.drop(1)

    def _require_in_flight(self, whole: Acknowledgement) -> None:
        floor = bisect_right(self._batches, max(whole.first, self.start_offset), key=_first_of) - 1
        if floor < 0:
            raise InvalidRecordStateError(
                "Batch record not found. The request batch offsets are not found in the cache."
            )
        last_batch = self._batches[bisect_right(self._batches, whole.last, key=_first_of) - 1]
        if last_batch.last < whole.first:
            raise InvalidAcknowledgementError(
                "Batch record not found. The first offset in request is past acquired records."
            )
        if last_batch.last < whole.last:
            raise InvalidAcknowledgementError(
                "Batch record not found. The last offset in request is past acquired records."
            )

    def _runs_between(self, first: int, last: int) -> list[tuple[Batch, Run]]:
        """The runs that have something of [first, last], each with its batch, as they are now."""
        return [
            (batch, run) for batch in self._batches_between(first, last) for run in _of_range(batch.runs, first, last)
        ]

    def _require_held(self, run: Run, member_id: str, *, may_be: bool) -> None:
        if run.before is not None:
            raise InvalidRecordStateError(
                "The record state is invalid. The acknowledgement of delivery could not be completed."
            )
        if run.state is not DeliveryState.ACQUIRED or run.lock is None:
            raise InvalidRecordStateError("The batch cannot be acknowledged. The batch is not in the acquired state.")
        if run.lock.member_id != member_id:
            raise InvalidRecordStateError("Member is not the owner of batch record")
        if not may_be:
            raise InvalidRecordStateError("Renewing acquisition locks is not enabled for the group.")

    def _move_lock(self, run: Run, lock: Lock) -> None:
        run.unlock()
        run.put_under(lock)

    def release(self, member_id: str) -> Transition:
        """Begin to give back all that a member holds (its session has ended). It counts as delivered."""
        transition = Transition()
        for batch in self._batches:
            self._cut_at_start(batch)
            for run in batch.runs:
                if run.before is None and run.lock is not None and run.lock.member_id == member_id:
                    self._begin(transition, run, DeliveryState.AVAILABLE)
        return transition

    def _begin(self, transition: Transition, run: Run, state: DeliveryState) -> None:
        if run.is_rejected:
            state = self._archived()
        elif state is DeliveryState.AVAILABLE:
            state = self._given_back(run)
        run.begin(state)
        transition.runs.append(run)

    def complete(self, transition: Transition, *, stored: bool) -> None:
        """End what was begun: it is stored, or taken back. What was to be given back then goes on to be held, unless
        its lock has ended meanwhile."""
        for run in transition.runs:
            before = run.end()
            if not stored:
                if not before.has_expired:
                    run.become(DeliveryState.ACQUIRED)
                    continue
                self._give_back(run)
            run.unlock()
            self._may_redeliver |= run.state is DeliveryState.AVAILABLE
        transition.runs.clear()
        if self._batches and self._batches[0].first < self.start_offset:
            # The log's beginning may have moved meanwhile.
            self._archive(self._batches[0].first, self.start_offset - 1, DeliveryState.AVAILABLE)
        self._advance_start()

    def _give_back(self, run: Run) -> None:
        """Its lock has ended."""
        run.become(self._given_back(run))
        self._may_redeliver |= run.state is DeliveryState.AVAILABLE

    def _given_back(self, run: Run) -> DeliveryState:
        if run.last < self.start_offset:
            return DeliveryState.ARCHIVED
        return self._archived() if run.delivery_count >= self.max_delivery_count else DeliveryState.AVAILABLE

    def _archived(self) -> DeliveryState:
        """The state of a record that will not be delivered again."""
        return DeliveryState.ARCHIVING if self.has_dead_letters else DeliveryState.ARCHIVED

    def expire(self, lock: Lock) -> list[StateBatch]:
        """A lock's time is over: what is held by it is available again, or given up. Returns what is to be stored.

        What is on its way to be stored is left to that; it is not held again if it cannot be.
        """
        lock.time_out()
        changed: list[Run] = []
        for batch in self._batches:
            if any(run.lock is lock for run in batch.runs):
                self._cut_at_start(batch)
                for run in batch.runs:
                    if run.lock is lock and run.before is None:
                        self._give_back(run)
                        run.unlock()
                        changed.append(run)
        stored = joined_batches(changed)
        self._advance_start()
        return stored

    # Dead letters

    def dead(self) -> list[Dead]:
        """The records that have yet to be written to the group's dead-letter queue, in order."""
        return [
            Dead(run.first, run.last, run.delivery_count, self._cause(run))
            for run in self.runs()
            if run.state is DeliveryState.ARCHIVING and run.before is None
        ]

    def _cause(self, run: Run) -> Cause:
        is_rejected = run.is_rejected or run.delivery_count < self.max_delivery_count
        return Cause.REJECTED if is_rejected else Cause.DELIVERED_TOO_OFTEN

    def archive_dead(self, first: int, last: int) -> list[StateBatch]:
        """Archive the dead records between two offsets, whose letters are written or given up. Returns the state to
        store."""
        changed = []
        for batch, run in self._runs_between(first, last):
            if run.state is DeliveryState.ARCHIVING and run.before is None:
                part = batch.isolate(run, first, last)
                part.become(DeliveryState.ARCHIVED)
                changed.append(part)
        stored = joined_batches(changed)
        for batch in self._batches_between(first, last):
            batch.join()
        self._advance_start()
        return stored

    # The start

    def move_start(self, log_start_offset: int) -> None:
        """The log begins later now: what lies before is over. What is held of it stays held until it is given back."""
        if log_start_offset <= self.start_offset:
            return
        self._archive(self.start_offset, log_start_offset - 1, DeliveryState.AVAILABLE)
        self.start_offset = log_start_offset
        self.next_offset = max(self.next_offset, log_start_offset)
        self._advance_start()

    def _advance_start(self) -> None:
        """Let the start pass what is over, and forget the batches that lie before it."""
        gone = 0
        for batch in self._batches:
            if not all(run.is_over for run in batch.runs):
                break
            gone += 1
        if gone:
            del self._batches[:gone]
            behind = self._batches[0].first if self._batches else self.next_offset
            self.start_offset = max(self.start_offset, behind)
        if self._batches:
            first = next(run for run in self._batches[0].runs if not run.is_over)
            if first is not self._batches[0].runs[0]:
                self.start_offset = max(self.start_offset, first.first)

    def _cut_at_start(self, batch: Batch) -> None:
        if batch.first < self.start_offset <= batch.last:
            for run in batch.runs:
                if run.first < self.start_offset <= run.last and run.before is None:
                    batch.isolate(run, run.first, self.start_offset - 1)
                    return

    def _batches_between(self, first: int, last: int) -> list[Batch]:
        """The batches that have something of [first, last]."""
        return _of_range(self._batches, first, last)


class _Acquisition:
    """One member's acquiring of records that were in flight before."""

    __slots__ = ("_in_flight", "_is_strict", "_lock", "acquired", "left")

    def __init__(self, in_flight: InFlight, lock: Lock, limit: int, *, is_strict: bool) -> None:
        self._in_flight = in_flight
        self._lock = lock
        self._is_strict = is_strict
        self.left = limit
        self.acquired: list[Acquired] = []

    def acquire_again(self, batch: Batch, first: int, last: int) -> bool:
        """Take what is available of a batch between two offsets; False if nothing is to be taken behind it."""
        available = [run for run in batch.runs if run.is_available and run.first <= last and run.last >= first]
        if self.left <= 0:
            return False
        if not available:
            return True
        most = self._in_flight.max_delivery_count
        # Half of the deliveries, two at least: beyond, some record of the batch is suspected to be bad.
        suspicious = max(2, (most + 1) // 2)
        is_suspected = max(run.delivery_count for run in available) >= suspicious
        is_halved = False
        if is_suspected and self.acquired:
            self.left = 0
            return False
        allowed = self.left if self._is_strict else batch.count
        taken = 0
        for run in available:
            if most > 2 and run.delivery_count == most - 1:
                # It is delivered for the last time, and that alone.
                if taken:
                    break
                allowed = 1
            elif run.delivery_count >= suspicious and not is_halved:
                is_halved = True
                allowed = min(allowed, max(1, batch.count >> (run.delivery_count - suspicious + 1)))
            if taken < allowed:
                begin = max(run.first, first)
                part = batch.isolate(run, begin, min(run.last, last, begin + allowed - taken - 1))
                self._take(part)
                taken += part.count
        self.left = 0 if is_suspected else self.left - taken
        return self.left > 0

    def _take(self, run: Run) -> None:
        run.acquire(self._lock)
        acquired = self.acquired
        if acquired and acquired[-1].last + 1 == run.first and acquired[-1].delivery_count == run.delivery_count:
            acquired[-1] = acquired[-1]._replace(last=run.last)
        else:
            acquired.append(Acquired(run.first, run.last, run.delivery_count))


def _pieces(acknowledgement: Acknowledgement) -> Iterator[tuple[int, int, int]]:
    """Neighbouring offsets of one type; raises InvalidAcknowledgementError for a type that there is not."""
    first, last, types = acknowledgement
    unknown = [kind for kind in types if kind != RENEW and kind not in _STATES]
    if unknown or not types:
        raise InvalidAcknowledgementError(f"Invalid acknowledge type: {unknown[:1]}")
    if len(types) == 1:
        yield first, last, types[0]
        return
    begin = 0
    for index in range(1, len(types) + 1):
        if index == len(types) or types[index] != types[begin]:
            yield first + begin, first + index - 1, types[begin]
            begin = index


def _of_range(ordered: list[B], first: int, last: int) -> list[B]:
    """The elements that overlap [first, last]."""
    begin = bisect_left(ordered, first, key=_last_of)
    return ordered[begin : bisect_right(ordered, last, key=_first_of)]


def _first_of(some: Batch | Run) -> int:
    return some.first


def _last_of(some: Batch | Run) -> int:
    return some.last
