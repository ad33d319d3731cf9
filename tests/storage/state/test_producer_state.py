"""Producer state: Kafka's rules one by one, then random histories against a model that scans the whole log."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.kproto.records import BatchHeader, EndTxnMarker
from ottla.storage.errors import (
    CorruptLogError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    StorageError,
    TransactionCoordinatorFencedError,
    UnsupportedFormatError,
)
from ottla.storage.state.producer_snapshot import read_snapshot, write_snapshot
from ottla.storage.state.producer_state import (
    AppendPlan,
    CompletedTransaction,
    DuplicateBatch,
    FrozenProducers,
    ProducerStateManager,
)

LAST_SEQUENCE = (1 << 31) - 1
PRODUCER = 7


def batch(
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer_id: int = PRODUCER,
    transactional: bool = False,
    control: bool = False,
    base_offset: int = 0,
    record_count: int | None = None,
    timestamp_ms: int = 1_000,
) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=(0x10 if transactional else 0) | (0x20 if control else 0),
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count if record_count is None else record_count,
    )


def marker_batch(*, epoch: int = 0, producer_id: int = PRODUCER, base_offset: int = 0) -> BatchHeader:
    return batch(-1, epoch=epoch, producer_id=producer_id, transactional=True, control=True, base_offset=base_offset)


def marker(*, commit: bool = True, coordinator_epoch: int = 0, epoch: int = 0) -> EndTxnMarker:
    return EndTxnMarker(PRODUCER, epoch, coordinator_epoch, commit)


class Log:
    """A producer state with a log end offset, as a leader drives it."""

    def __init__(self) -> None:
        self.state = ProducerStateManager()
        self.end_offset = 0

    def append(
        self, header: BatchHeader, *, from_client: bool = True, require_verification: bool = False
    ) -> int | DuplicateBatch:
        """The base offset that the batch got, or the duplicate that it is."""
        decision = self.state.check(header, from_client=from_client, require_verification=require_verification)
        if isinstance(decision, DuplicateBatch):
            return decision
        base_offset = self.end_offset
        assert self.state.apply(decision, base_offset) is None
        self.end_offset += header.last_offset_delta + 1
        return base_offset

    def end(
        self, *, commit: bool = True, coordinator_epoch: int = 0, epoch: int = 0, version: int = 0
    ) -> CompletedTransaction | None:
        decision = self.state.check(
            marker_batch(epoch=epoch),
            marker(commit=commit, coordinator_epoch=coordinator_epoch, epoch=epoch),
            transaction_version=version,
        )
        assert isinstance(decision, AppendPlan)
        completed = self.state.apply(decision, self.end_offset)
        self.end_offset += 1
        return completed


class TestSequences:
    def test_batches_follow_each_other(self) -> None:
        log = Log()
        assert [log.append(batch(0, 3)), log.append(batch(3, 2)), log.append(batch(5))] == [0, 3, 5]

    @pytest.mark.parametrize("sequence", [3, 5, 1_000])
    def test_a_gap_or_an_overlap_is_out_of_order(self, sequence: int) -> None:
        log = Log()
        log.append(batch(0, 4))
        with pytest.raises(OutOfOrderSequenceError, match="expected is 4"):
            log.append(batch(sequence))
        assert log.append(batch(4)) == 4

    def test_an_unknown_producer_may_begin_anywhere(self) -> None:
        assert Log().append(batch(12_345)) == 0

    def test_the_sequence_wraps_between_batches(self) -> None:
        log = Log()
        log.append(batch(LAST_SEQUENCE - 1, 2))
        assert log.append(batch(0)) == 2

    def test_the_sequence_wraps_within_a_batch(self) -> None:
        log = Log()
        log.append(batch(LAST_SEQUENCE - 1, 4))
        assert log.append(batch(LAST_SEQUENCE - 1, 4)) == DuplicateBatch(0, 3, 1_000)
        assert log.append(batch(2)) == 4

    def test_the_last_five_batches_are_recognised(self) -> None:
        log = Log()
        for number in range(6):
            log.append(batch(2 * number, 2, timestamp_ms=number))
        for number in range(1, 6):
            assert log.append(batch(2 * number, 2)) == DuplicateBatch(2 * number, 2 * number + 1, number)
        with pytest.raises(OutOfOrderSequenceError):
            log.append(batch(0, 2))

    def test_a_batch_with_the_same_start_and_another_length_is_no_duplicate(self) -> None:
        log = Log()
        log.append(batch(0, 2))
        with pytest.raises(OutOfOrderSequenceError):
            log.append(batch(0, 1))

    def test_the_broker_timestamp_answers_a_duplicate(self) -> None:
        state = ProducerStateManager()
        plan = state.check(batch(0))
        assert isinstance(plan, AppendPlan)
        state.apply(plan, 5, timestamp_ms=99)
        assert state.check(batch(0)) == DuplicateBatch(5, 5, 99)

    def test_a_plan_that_is_dropped_changes_nothing(self) -> None:
        state = ProducerStateManager()
        assert isinstance(state.check(batch(0)), AppendPlan)
        assert len(state) == 0
        assert isinstance(state.check(batch(5)), AppendPlan)

    def test_coordinators_write_without_sequences(self) -> None:
        log = Log()
        assert log.append(batch(-1, 2, transactional=True), from_client=False) == 0
        assert log.append(batch(-1, 2, transactional=True), from_client=False) == 2


class TestEpochs:
    def test_a_new_epoch_begins_at_zero(self) -> None:
        log = Log()
        log.append(batch(0, 5))
        with pytest.raises(OutOfOrderSequenceError, match="expected is 0"):
            log.append(batch(5, epoch=1))
        assert log.append(batch(0, epoch=1)) == 5

    def test_an_old_epoch_is_fenced_for_clients_and_coordinators(self) -> None:
        log = Log()
        log.append(batch(0, epoch=3))
        for from_client in (True, False):
            with pytest.raises(InvalidProducerEpochError):
                log.append(batch(1, epoch=2), from_client=from_client)

    def test_a_duplicate_of_an_old_epoch_is_fenced(self) -> None:
        log = Log()
        log.append(batch(0))
        log.append(batch(0, epoch=1))
        with pytest.raises(InvalidProducerEpochError):
            log.append(batch(0))

    def test_a_follower_takes_what_the_leader_took(self) -> None:
        state = ProducerStateManager()
        state.replay(batch(9, epoch=3, base_offset=0))
        state.replay(batch(1, epoch=2, base_offset=1))
        state.replay(batch(77, epoch=2, base_offset=2))
        entry = state.get(PRODUCER)
        assert entry is not None
        assert (entry.producer_epoch, entry.last_sequence, state.end_offset) == (2, 77, 3)


class TestTransactions:
    def test_an_open_transaction_bounds_what_is_stable(self) -> None:
        log = Log()
        log.append(batch(0, 3))
        assert log.state.first_unstable_offset is None
        log.append(batch(3, 2, transactional=True))
        log.append(batch(5, 2, transactional=True))
        assert log.state.first_unstable_offset == 3
        assert log.state.has_ongoing_transaction(PRODUCER, 0)
        assert not log.state.has_ongoing_transaction(PRODUCER, 1)

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_marker_ends_it_when_it_is_below_the_high_watermark(self, commit: bool) -> None:
        log = Log()
        log.append(batch(0, 4, transactional=True))
        assert log.end(commit=commit) == CompletedTransaction(PRODUCER, 0, 4, not commit, 5)
        assert not log.state.has_ongoing_transaction(PRODUCER, 0)
        assert log.state.first_unstable_offset == 0
        assert not log.state.advance_high_watermark(4)
        assert log.state.advance_high_watermark(5)
        assert log.state.first_unstable_offset is None

    def test_the_next_open_transaction_is_the_completed_ones_stable_offset(self) -> None:
        log = Log()
        log.append(batch(0, 2, transactional=True))
        log.append(batch(0, 2, transactional=True, producer_id=8))
        completed = log.end(commit=False)
        assert completed is not None
        assert completed.last_stable_offset == 2

    def test_a_marker_without_data_completes_nothing(self) -> None:
        log = Log()
        assert log.end() is None
        assert log.state.first_unstable_offset is None
        entry = log.state.get(PRODUCER)
        assert entry is not None
        assert entry.coordinator_epoch == 0

    def test_an_older_coordinator_is_fenced(self) -> None:
        log = Log()
        log.end(coordinator_epoch=3)
        log.end(coordinator_epoch=3)
        with pytest.raises(TransactionCoordinatorFencedError):
            log.end(coordinator_epoch=2)

    def test_a_marker_of_the_transactions_epoch_ends_a_v1_transaction(self) -> None:
        log = Log()
        log.append(batch(0, transactional=True, epoch=2))
        assert log.end(epoch=2, version=1) is not None
        assert log.append(batch(1, transactional=True, epoch=2)) == 2
        with pytest.raises(InvalidProducerEpochError):
            log.end(epoch=1, version=1)

    def test_a_v2_marker_bumps_the_epoch(self) -> None:
        log = Log()
        log.append(batch(0, 3, transactional=True, epoch=2))
        with pytest.raises(InvalidProducerEpochError, match="transaction version 2"):
            log.end(epoch=2, version=2)
        assert log.end(epoch=3, version=2) is not None
        with pytest.raises(InvalidProducerEpochError):
            log.append(batch(3, transactional=True, epoch=2))
        with pytest.raises(OutOfOrderSequenceError):
            log.append(batch(3, transactional=True, epoch=3))
        assert log.append(batch(0, transactional=True, epoch=3)) == 4

    def test_a_v2_marker_may_come_again_after_its_transaction(self) -> None:
        log = Log()
        log.append(batch(0, transactional=True))
        log.end(epoch=1, version=2)
        assert log.end(epoch=1, version=2) is None
        with pytest.raises(InvalidProducerEpochError):
            log.end(epoch=0, version=2)

    def test_a_plain_batch_within_a_transaction_is_refused(self) -> None:
        log = Log()
        log.append(batch(0, transactional=True))
        with pytest.raises(InvalidTransactionStateError):
            log.append(batch(1))
        assert log.append(batch(1, transactional=True)) == 1

    def test_batches_that_compaction_emptied_open_and_end_nothing(self) -> None:
        state = ProducerStateManager()
        state.replay(batch(0, 5, transactional=True, record_count=0))
        assert state.first_unstable_offset is None
        assert state.replay(marker_batch(base_offset=5)) is None
        assert state.end_offset == 6
        entry = state.get(PRODUCER)
        assert entry is not None
        assert (entry.last_sequence, entry.coordinator_epoch) == (4, -1)

    def test_plain_batches_move_the_end_only(self) -> None:
        state = ProducerStateManager()
        state.replay(batch(-1, 5, producer_id=-1, epoch=-1, base_offset=10))
        assert (len(state), state.end_offset) == (0, 15)

    def test_deleted_records_no_longer_bound_what_is_stable(self) -> None:
        log = Log()
        log.append(batch(0, 4, transactional=True))
        log.end()
        assert log.state.advance_log_start_offset(5)
        assert log.state.first_unstable_offset is None
        assert len(log.state) == 1


class TestVerification:
    def test_an_unverified_transaction_does_not_begin(self) -> None:
        log = Log()
        with pytest.raises(InvalidTransactionStateError):
            log.append(batch(0, transactional=True), require_verification=True)
        assert log.append(batch(0), require_verification=True) == 0

    def test_a_verified_one_begins_and_continues_without(self) -> None:
        state = ProducerStateManager()
        guard = state.begin_verification(PRODUCER, 0, 0, supports_epoch_bump=False, now_ms=0)
        plan = state.check(batch(0, transactional=True), require_verification=True, guard=guard)
        assert isinstance(plan, AppendPlan)
        state.apply(plan, 0)
        assert state.begin_verification(PRODUCER, 0, 1, supports_epoch_bump=False, now_ms=0) is None
        assert isinstance(state.check(batch(1, transactional=True), require_verification=True), AppendPlan)

    def test_an_abort_in_between_makes_the_answer_worthless(self) -> None:
        log = Log()
        guard = log.state.begin_verification(PRODUCER, 0, 0, supports_epoch_bump=False, now_ms=0)
        log.end(commit=False)
        with pytest.raises(InvalidTransactionStateError):
            log.state.check(batch(0, transactional=True), require_verification=True, guard=guard)

    def test_what_a_fenced_producer_sends_does_not_disturb_the_next(self) -> None:
        log = Log()
        log.append(batch(0, transactional=True, epoch=1))
        log.state.begin_verification(PRODUCER, 0, 0, supports_epoch_bump=False, now_ms=0)
        assert log.append(batch(1, transactional=True, epoch=1), require_verification=True) == 1

    def test_a_stale_epoch_is_fenced_before_it_is_verified(self) -> None:
        log = Log()
        log.append(batch(0, epoch=2))
        with pytest.raises(InvalidProducerEpochError):
            log.append(batch(0, transactional=True, epoch=1), require_verification=True)

    def test_a_later_batch_does_not_overtake_the_first_that_asked(self) -> None:
        state = ProducerStateManager()
        guard = state.begin_verification(PRODUCER, 0, 10, supports_epoch_bump=False, now_ms=0)
        assert state.begin_verification(PRODUCER, 0, 4, supports_epoch_bump=False, now_ms=0) is guard
        with pytest.raises(OutOfOrderSequenceError, match="expected is 4"):
            state.check(batch(10, transactional=True), require_verification=True, guard=guard)
        assert isinstance(state.check(batch(4, transactional=True), require_verification=True, guard=guard), AppendPlan)

    def test_one_guard_knows_the_lowest_sequence_of_the_latest_epoch(self) -> None:
        state = ProducerStateManager()
        guard = state.begin_verification(PRODUCER, 0, 2, supports_epoch_bump=False, now_ms=0)
        for epoch, sequence, expected in ((1, 7, 7), (1, 5, 5), (0, 1, 5), (2, 6, 6)):
            assert state.begin_verification(PRODUCER, epoch, sequence, supports_epoch_bump=False, now_ms=0) is guard
            for transactional in (True, False):
                with pytest.raises(OutOfOrderSequenceError, match=f"expected is {expected}"):
                    state.check(batch(expected + 1, epoch=0, transactional=transactional), guard=guard)

    def test_what_a_fenced_producer_sends_leaves_no_guard(self) -> None:
        log = Log()
        log.append(batch(0, epoch=1))
        assert log.state.is_fenced(PRODUCER, 0)
        assert log.state.begin_verification(PRODUCER, 0, 0, supports_epoch_bump=False, now_ms=0) is None
        assert log.append(batch(1, epoch=1)) == 1

    def test_transactions_v2_begin_at_zero(self) -> None:
        state = ProducerStateManager()
        guard = state.begin_verification(PRODUCER, 0, 3, supports_epoch_bump=True, now_ms=0)
        with pytest.raises(OutOfOrderSequenceError):
            state.check(batch(3, transactional=True), require_verification=True, guard=guard)

    def test_transactions_v2_begin_at_zero_after_a_later_epoch_was_tried(self) -> None:
        state = ProducerStateManager()
        tried = state.begin_verification(PRODUCER, 1, 0, supports_epoch_bump=True, now_ms=0)
        guard = state.begin_verification(PRODUCER, 0, 2, supports_epoch_bump=True, now_ms=0)
        assert guard is tried
        with pytest.raises(OutOfOrderSequenceError, match="expected is 0"):
            state.check(batch(2, transactional=True), require_verification=True, guard=guard)
        assert isinstance(state.check(batch(0, transactional=True), require_verification=True, guard=guard), AppendPlan)

    def test_forgotten_verifications_expire(self) -> None:
        state = ProducerStateManager()
        guard = state.begin_verification(PRODUCER, 0, 0, supports_epoch_bump=False, now_ms=0)
        state.expire(1_000, 1_000)
        with pytest.raises(InvalidTransactionStateError):
            state.check(batch(0, transactional=True), require_verification=True, guard=guard)


class TestExpiry:
    def test_idle_producers_are_forgotten_but_not_within_a_transaction(self) -> None:
        log = Log()
        log.append(batch(0, timestamp_ms=1_000))
        log.append(batch(0, timestamp_ms=2_000, producer_id=8))
        log.append(batch(0, timestamp_ms=1_000, producer_id=9, transactional=True))
        assert log.state.expire(now_ms=2_000, expiration_ms=1_000) == 1
        assert sorted(entry.producer_id for entry in log.state.active_producers()) == [8, 9]
        assert log.append(batch(500)) == 3


class TestSnapshots:
    def test_what_is_frozen_stays_when_the_log_is_cut(self) -> None:
        log = Log()
        for sequence in range(4):
            log.append(batch(sequence))
        frozen = log.state.freeze()
        content = write_snapshot(frozen)
        assert log.state.knows_until(2)
        log.state.truncate_from_end(2)
        assert write_snapshot(frozen) == content
        assert write_snapshot(log.state.freeze()) != content

    def snapshot(self) -> bytes:
        log = Log()
        log.append(batch(0, transactional=True))
        return write_snapshot(log.state.freeze())

    def test_every_flipped_bit_is_noticed(self) -> None:
        content = self.snapshot()
        for bit in range(len(content) * 8):
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises((CorruptLogError, UnsupportedFormatError)):
                read_snapshot(bytes(damaged))

    def test_every_cut_is_noticed(self) -> None:
        content = self.snapshot()
        for size in range(len(content)):
            with pytest.raises(StorageError):
                read_snapshot(content[:size])


@dataclass
class Entry:
    """One batch of the model's log."""

    header: BatchHeader
    base_offset: int
    marker: EndTxnMarker | None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.header.last_offset_delta


class ProducerMachine(RuleBasedStateMachine):
    """Random histories of three producers. The model knows only the log and decides by reading all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Entry] = []
        self.end_offset = 0
        self.high_watermark = 0
        self.state = ProducerStateManager()
        self.frozen: list[tuple[FrozenProducers, bytes]] = []

    @initialize(epoch=st.integers(0, 2), sequence=st.sampled_from([0, LAST_SEQUENCE - 3]))
    def begin(self, epoch: int, sequence: int) -> None:
        self.send(producer_id=0, header=batch(sequence, 2, epoch=epoch, producer_id=0))

    # The model.

    def of(self, producer_id: int) -> list[Entry]:
        return [entry for entry in self.log if entry.header.producer_id == producer_id]

    def epoch_of(self, producer_id: int) -> int:
        entries = self.of(producer_id)
        return entries[-1].header.producer_epoch if entries else -1

    def remembered(self, producer_id: int) -> list[Entry]:
        """The last five data batches written since the producer's epoch last changed."""
        epoch, found = self.epoch_of(producer_id), []
        for entry in reversed(self.of(producer_id)):
            if entry.header.producer_epoch != epoch:
                break
            if entry.marker is None:
                found.append(entry)
        return found[:5]

    def open_transaction(self, producer_id: int) -> int | None:
        first = None
        for entry in self.of(producer_id):
            if entry.marker is not None:
                first = None
            elif entry.header.is_transactional and first is None:
                first = entry.base_offset
        return first

    def first_unstable(self) -> int | None:
        """Transactions that are open, or whose marker is not yet below the high watermark."""
        found: list[int] = []
        firsts: dict[int, int] = {}
        for entry in self.log:
            producer_id = entry.header.producer_id
            if entry.marker is not None:
                first = firsts.pop(producer_id, None)
                if first is not None and entry.base_offset >= self.high_watermark:
                    found.append(first)
            elif entry.header.is_transactional:
                firsts.setdefault(producer_id, entry.base_offset)
        return min([*found, *firsts.values()], default=None)

    def expected(self, header: BatchHeader) -> type[StorageError] | DuplicateBatch | None:
        producer_id = header.producer_id
        epoch = self.epoch_of(producer_id)
        remembered = self.remembered(producer_id)
        for entry in remembered:
            same = (entry.header.base_sequence, entry.header.last_offset_delta, entry.header.producer_epoch)
            if same == (header.base_sequence, header.last_offset_delta, header.producer_epoch):
                return DuplicateBatch(entry.base_offset, entry.last_offset, 1_000)
        if header.producer_epoch < epoch:
            return InvalidProducerEpochError
        if epoch >= 0:
            due = 0
            if header.producer_epoch == epoch and remembered:
                due = (remembered[0].header.last_sequence + 1) % (LAST_SEQUENCE + 1)
            if header.base_sequence != due:
                return OutOfOrderSequenceError
        if self.open_transaction(producer_id) is not None and not header.is_transactional:
            return InvalidTransactionStateError
        return None

    # What happens.

    def send(self, producer_id: int, header: BatchHeader) -> None:
        expected = self.expected(header)
        if isinstance(expected, type):
            before = write_snapshot(self.state.freeze())
            with pytest.raises(expected):
                self.state.check(header)
            assert write_snapshot(self.state.freeze()) == before
            return
        decision = self.state.check(header)
        if expected is not None:
            assert decision == expected
            return
        assert isinstance(decision, AppendPlan)
        assert self.state.apply(decision, self.end_offset) is None
        self.log.append(Entry(header, self.end_offset, None))
        self.end_offset += header.last_offset_delta + 1

    @rule(
        producer_id=st.integers(0, 2),
        count=st.integers(1, 4),
        transactional=st.booleans(),
        bump=st.sampled_from([0, 0, 0, 0, 1, -1]),
    )
    def send_next(self, producer_id: int, count: int, transactional: bool, bump: int) -> None:
        epoch = max(self.epoch_of(producer_id) + bump, 0)
        remembered = self.remembered(producer_id)
        sequence = (remembered[0].header.last_sequence + 1) % (LAST_SEQUENCE + 1) if remembered and not bump else 0
        self.send(
            producer_id, batch(sequence, count, epoch=epoch, producer_id=producer_id, transactional=transactional)
        )

    @rule(producer_id=st.integers(0, 2), sequence=st.integers(0, 12), count=st.integers(1, 4), epoch=st.integers(0, 4))
    def send_anything(self, producer_id: int, sequence: int, count: int, epoch: int) -> None:
        self.send(producer_id, batch(sequence, count, epoch=epoch, producer_id=producer_id))

    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        entries = [entry for entry in self.log if entry.marker is None]
        if entries:
            entry = data.draw(st.sampled_from(entries))
            self.send(entry.header.producer_id, entry.header)

    @rule(producer_id=st.integers(0, 2), commit=st.booleans(), version=st.sampled_from([1, 2]))
    def end_transaction(self, producer_id: int, commit: bool, version: int) -> None:
        epoch = max(self.epoch_of(producer_id), 0) + (version == 2)
        header = marker_batch(epoch=epoch, producer_id=producer_id)
        content = EndTxnMarker(producer_id, epoch, 0, commit)
        first = self.open_transaction(producer_id)
        decision = self.state.check(header, content, transaction_version=version)
        assert isinstance(decision, AppendPlan)
        completed = self.state.apply(decision, self.end_offset)
        self.log.append(Entry(header, self.end_offset, content))
        self.end_offset += 1
        if first is None:
            assert completed is None
        else:
            still_open = [self.open_transaction(other) for other in range(3) if other != producer_id]
            stable = min((offset for offset in still_open if offset is not None), default=self.end_offset)
            assert completed == CompletedTransaction(producer_id, first, self.end_offset - 1, not commit, stable)

    @rule(data=st.data())
    def advance_high_watermark(self, data: st.DataObject) -> None:
        self.high_watermark = data.draw(st.integers(self.high_watermark, self.end_offset))
        before = self.state.first_unstable_offset
        assert self.state.advance_high_watermark(self.high_watermark) == (before != self.state.first_unstable_offset)

    @rule()
    def restart_from_a_snapshot(self) -> None:
        content = write_snapshot(self.state.freeze())
        self.state = read_snapshot(content)
        assert write_snapshot(self.state.freeze()) == content

    @precondition(lambda self: len(self.frozen) < 3)
    @rule()
    def freeze(self) -> None:
        frozen = self.state.freeze()
        self.frozen.append((frozen, write_snapshot(frozen)))

    @rule()
    def restart_by_replaying_the_log(self) -> None:
        replayed = ProducerStateManager()
        for entry in self.log:
            replayed.replay(entry.header._replace(base_offset=entry.base_offset), entry.marker)
        replayed.advance_high_watermark(self.high_watermark)
        self.state.advance_high_watermark(self.high_watermark)
        self.state = replayed

    @invariant()
    def what_is_frozen_stays(self) -> None:
        assert all(write_snapshot(frozen) == content for frozen, content in self.frozen)

    @invariant()
    def the_state_agrees_with_the_log(self) -> None:
        assert self.state.first_unstable_offset == self.first_unstable()
        assert self.state.end_offset == self.end_offset
        for producer_id in range(3):
            entry = self.state.get(producer_id)
            if entry is None:
                assert not self.of(producer_id)
                continue
            assert entry.producer_epoch == self.epoch_of(producer_id)
            assert [(item.base_offset, item.last_offset) for item in reversed(entry.batches)] == [
                (item.base_offset, item.last_offset) for item in self.remembered(producer_id)
            ]
            first = self.open_transaction(producer_id)
            assert entry.transaction_first_offset == (-1 if first is None else first)


TestProducerModel = ProducerMachine.TestCase
