"""Histories of a share partition: whatever members do in whatever order, a record has one holder, and none is lost."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordinator.share.state import DeliveryState, StateBatch, combine
from ottla.server.share.errors import InvalidAcknowledgementError, InvalidRecordStateError
from ottla.server.share.in_flight import ACCEPT, GAP, REJECT, RELEASE, RENEW, InFlight
from ottla.server.share.records import Acknowledgement, Lock, Span, Transition

MEMBERS = ("a", "b", "c")
MAX_DELIVERIES = 4
MAX_RECORDS = 30


class ListedLock(Lock):
    """A lock that is in a list as long as something may be under it."""

    __slots__ = ("_listed",)

    def __init__(self, member_id: str, listed: list[Lock]) -> None:
        super().__init__(member_id)
        self._listed = listed

    def free(self) -> None:
        assert not self.held
        if self in self._listed:
            self._listed.remove(self)


class ShareHistory(RuleBasedStateMachine):
    """A log of record batches, some of them compacted away, members, a store that may refuse, and restarts.

    The model knows for every offset who holds it, how often it was delivered since the last restart, and whether it is
    over; what the machine says has to agree.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Span] = []
        self.end = 0
        self.log_start = 0
        self.stored: tuple[StateBatch, ...] = ()
        self.stored_start = 0
        self.locks: list[Lock] = []
        self.pending: list[tuple[Transition, tuple[StateBatch, ...], int]] = []
        self.holder: dict[int, str] = {}
        self.deliveries: dict[int, int] = {}
        self.over: set[int] = set()
        self.machine = self._load()

    def _load(self) -> InFlight:
        return InFlight(
            self.stored_start,
            self.stored,
            max_records=MAX_RECORDS,
            max_delivery_count=MAX_DELIVERIES,
            new_lock=self._new_lock,
        )

    def _new_lock(self, member_id: str) -> Lock:
        lock = ListedLock(member_id, self.locks)
        self.locks.append(lock)
        return lock

    @rule(count=st.integers(1, 12), hole=st.integers(0, 3))
    def produce(self, count: int, hole: int) -> None:
        self.end += hole
        self.log.append(Span(self.end, self.end + count - 1))
        self.end += count

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def compact(self, data: Any) -> None:
        """A whole record batch goes; its records are over if nobody holds them."""
        del self.log[data.draw(st.integers(0, len(self.log) - 1))]

    @rule(
        member=st.sampled_from(MEMBERS),
        batches=st.integers(1, 4),
        max_records=st.integers(1, 20),
        batch_size=st.integers(1, 20),
        is_strict=st.booleans(),
    )
    def fetch(self, member: str, batches: int, max_records: int, batch_size: int, is_strict: bool) -> None:
        if not self.machine.can_acquire():
            return
        offset = self.machine.next_fetch_offset()
        if offset < self.log_start:
            self.machine.move_start(self.log_start)
            assert self.machine.next_fetch_offset() >= self.log_start, "what the log has lost is fetched for ever"
            return
        spans = [span for span in self.log if span.last >= offset][:batches]
        acquired = self.machine.acquire(
            member, offset, spans, max_records=max_records, batch_size=batch_size, is_strict=is_strict
        )
        if is_strict:
            assert sum(each.record_count for each in acquired) <= max_records
        for first, last, delivery_count in acquired:
            for each in range(first, last + 1):
                assert each not in self.holder, "a record with two members"
                assert each not in self.over, "a record that was over is delivered again"
                self.holder[each] = member
                self.deliveries[each] = self.deliveries.get(each, 0) + 1
                assert self.deliveries[each] == delivery_count <= MAX_DELIVERIES

    @rule(data=st.data(), member=st.sampled_from(MEMBERS), kind=st.sampled_from((GAP, ACCEPT, RELEASE, REJECT, RENEW)))
    def acknowledge(self, data: Any, member: str, kind: int) -> None:
        held = sorted(offset for offset, holder in self.holder.items() if holder == member)
        if held and data.draw(st.booleans()):
            first = data.draw(st.sampled_from(held))
            last = first
            while last + 1 in held and data.draw(st.booleans()):
                last += 1
        else:
            first = data.draw(st.integers(0, self.end + 2))
            last = first + data.draw(st.integers(0, 6))
        before = {run.first: repr(run) for run in self.machine.runs()}
        try:
            transition = self.machine.acknowledge(member, [Acknowledgement(first, last, [kind])])
        except (InvalidAcknowledgementError, InvalidRecordStateError):
            states = "".join(before.values())
            assert (
                "pending" in states or not set(range(first, last + 1)) <= set(held) or first < self.machine.start_offset
            )
            return
        self._begun(transition)

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self._begun(self.machine.release(member))

    def _begun(self, transition: Transition) -> None:
        if transition.runs:
            stored = tuple(transition.state_batches())
            self.pending.append((transition, stored, self.machine.start_offset))

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), stored=st.booleans())
    def settle(self, data: Any, stored: bool) -> None:
        """The store has answered the oldest change."""
        transition, batches, start = self.pending.pop(0)
        begun = [(run, range(run.first, run.last + 1)) for run in transition.runs]
        if stored:
            self._store(batches, start)
        self.machine.complete(transition, stored=stored)
        # Where the log begins later meanwhile, a run is cut there.
        known = {offset: run.state for run in self.machine.runs() for offset in range(run.first, run.last + 1)}
        for run, offsets in begun:
            for offset in offsets:
                self._follow(offset, known.get(offset, run.state))

    def _store(self, batches: tuple[StateBatch, ...], start: int) -> None:
        self.stored_start = max(self.stored_start, start)
        self.stored = combine(self.stored, batches, self.stored_start)

    def _follow(self, offset: int, state: DeliveryState) -> None:
        if state is not DeliveryState.ACQUIRED:
            self.holder.pop(offset, None)
        if state.is_terminal:
            self.over.add(offset)

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), stored=st.booleans())
    def expire(self, data: Any, stored: bool) -> None:
        lock = self.locks.pop(data.draw(st.integers(0, len(self.locks) - 1)))
        start = self.machine.start_offset
        batches = tuple(self.machine.expire(lock))
        for first, last, state, _ in batches:
            for offset in range(first, last + 1):
                assert self.holder.get(offset) == lock.member_id
                self._follow(offset, DeliveryState(state))
        if stored and batches:
            self._store(batches, start)

    @precondition(lambda self: self.end)
    @rule(data=st.data())
    def truncate(self, data: Any) -> None:
        """Retention moves the start of the log."""
        self.log_start = max(self.log_start, data.draw(st.integers(0, self.end)))
        self.log = [span for span in self.log if span.first >= self.log_start]
        self.machine.move_start(self.log_start)
        for offset in range(self.log_start):
            if offset not in self.holder:
                self.over.add(offset)

    @rule()
    def restart(self) -> None:
        """The leader is lost with all that was not stored: what it had given to members is theirs no more."""
        self.pending.clear()
        self.locks.clear()
        self.holder.clear()
        self.deliveries = {offset: count for first, last, _, count in self.stored for offset in range(first, last + 1)}
        self.over = set(range(self.stored_start)) | {
            offset
            for first, last, state, _ in self.stored
            if DeliveryState(state).is_terminal
            for offset in range(first, last + 1)
        }
        self.machine = self._load()
        if self.log_start > self.machine.start_offset:
            self.machine.move_start(self.log_start)
            self.over |= set(range(self.log_start))

    @invariant()
    def holds_agree(self) -> None:
        held = {
            offset: run.lock.member_id
            for run in self.machine.runs()
            if run.lock is not None
            for offset in range(run.first, run.last + 1)
        }
        assert held == self.holder
        for run in self.machine.runs():
            if run.before is None and run.lock is not None:
                assert run.lock in self.locks, "a record is held for ever"
        for lock in self.locks:
            assert lock.held == sum(run.count for run in self.machine.runs() if run.lock is lock)

    @invariant()
    def runs_are_in_order(self) -> None:
        end = -1
        for run in self.machine.runs():
            assert run.first > end
            end = run.last
        assert end < self.machine.next_offset
        assert self.machine.start_offset <= self.machine.next_offset

    @invariant()
    def no_record_is_lost(self) -> None:
        """What is in the log and not over will be delivered: it is held, on its way, available, or not fetched yet."""
        known = {offset: run for run in self.machine.runs() for offset in range(run.first, run.last + 1)}
        for span in self.log:
            for offset in range(max(span.first, self.log_start), span.last + 1):
                if offset >= self.machine.next_offset or offset in self.over:
                    continue
                run = known.get(offset)
                assert run is not None, f"offset {offset} is nowhere"
                assert offset >= self.machine.start_offset or run.lock is not None, f"offset {offset} was passed by"
                if run.state.is_terminal and run.before is None:
                    raise AssertionError(f"offset {offset} is over, and nobody said so")


TestShareHistory = ShareHistory.TestCase
TestShareHistory.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
