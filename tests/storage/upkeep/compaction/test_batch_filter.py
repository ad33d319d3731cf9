"""Compaction of batches: Kafka's rules one by one, then random histories and passes against a plain model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.kproto.records import (
    BatchHeader,
    Compression,
    CorruptRecordError,
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    crc_matches,
    iter_records,
    parse_batch_header,
    parse_end_txn_marker,
)
from ottla.storage.state.aborted_transactions import AbortedTransaction, AbortedTransactions
from ottla.storage.state.producer_state import ProducerStateManager
from ottla.storage.upkeep.compaction.batch_filter import LastRecord, index_batch, last_records
from ottla.storage.upkeep.compaction.cleaning import CleaningPass
from ottla.storage.upkeep.compaction.offset_map import ENTRY_BYTES, OffsetMap
from ottla.storage.upkeep.compaction.policy import CleanableRange
from ottla.storage.upkeep.compaction.transactions import CleanedTransactions

RETENTION_MS = 1_000
ROOMY_BYTES = 1_000 * ENTRY_BYTES


def first_open_offset(state: ProducerStateManager) -> int | None:
    """Where the oldest open transaction begins; compaction must not go beyond it."""
    return min(
        (each.transaction_first_offset for each in state.active_producers() if each.in_transaction), default=None
    )


def parse(batch: bytes) -> BatchHeader:
    header = parse_batch_header(batch)
    assert header.size_bytes == len(batch)
    assert crc_matches(batch, 0, header)
    return header


def records_of(batches: Sequence[bytes]) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of all data records."""
    return [
        (record.offset, record.key, record.value)
        for batch in batches
        if not parse(batch).is_control
        for record in iter_records(batch)
    ]


def shape_of(batches: Sequence[bytes]) -> list[tuple[int, int, bool]]:
    """(base offset, record count, is control) of all batches."""
    return [(h.base_offset, h.record_count, h.is_control) for h in map(parse, batches)]


@dataclass
class Cleaning:
    """A pass over a list of batches, as an engine runs it."""

    batches: list[bytes]
    now_ms: int = 0
    aborted: list[AbortedTransaction] = field(default_factory=list)
    producers: dict[int, LastRecord] = field(default_factory=dict)
    first_dirty_offset: int = 0
    end_offset: int | None = None
    high_watermark: int | None = None
    memory_bytes: int = ROOMY_BYTES
    cleaning: CleaningPass = field(init=False)

    def run(self) -> list[bytes]:
        """The batches after the pass. Batches at and beyond the end offset are left alone."""
        end_offset = parse(self.batches[-1]).next_offset + 1 if self.end_offset is None else self.end_offset
        within = [batch for batch in self.batches if parse(batch).next_offset <= end_offset]
        self.cleaning = cleaning = CleaningPass(
            CleanableRange(self.first_dirty_offset, end_offset, 0, 0, is_due=True),
            aborted=self.aborted,
            producers=self.producers,
            high_watermark=end_offset if self.high_watermark is None else self.high_watermark,
            now_ms=self.now_ms,
            delete_retention_ms=RETENTION_MS,
            memory_bytes=self.memory_bytes,
        )
        for batch in within:
            header = parse(batch)
            if header.last_offset >= self.first_dirty_offset and not cleaning.index(batch, 0, header):
                break
        cleaning.begin_rewrite()
        cleaned = [cleaning.clean(batch, 0, parse(batch)) for batch in within]
        return [bytes(batch) for batch in cleaned if batch is not None] + self.batches[len(within) :]

    @property
    def latest_offset(self) -> int:
        return self.cleaning.first_dirty_offset - 1

    @property
    def retained_aborted(self) -> list[AbortedTransaction]:
        return self.cleaning.retained_aborted


def keyed(base_offset: int, *pairs: tuple[bytes | None, bytes | None], **options: object) -> bytes:
    records = [Record(key=key, value=value, timestamp_ms=5_000) for key, value in pairs]
    return build_batch(records, base_offset=base_offset, **options)  # type: ignore[arg-type]


def transactional(
    base_offset: int, *pairs: tuple[bytes, bytes | None], producer_id: int = 1, sequence: int = 0
) -> bytes:
    return keyed(
        base_offset,
        *pairs,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def marker(base_offset: int, *, commit: bool, producer_id: int = 1) -> bytes:
    return build_end_txn_marker(EndTxnMarker(producer_id, 0, 0, commit), timestamp_ms=5_000, base_offset=base_offset)


class TestRecords:
    def test_the_latest_of_each_key_stays(self) -> None:
        batches = [keyed(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")), keyed(3, (b"c", b"1"), (b"b", b"2"))]
        assert records_of(Cleaning(batches).run()) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]

    def test_a_batch_that_keeps_everything_is_the_same_memory(self) -> None:
        batch = keyed(0, (b"a", b"1"), (b"b", b"1"))
        cleaning = Cleaning([batch])
        cleaning.run()
        again = cleaning.cleaning.clean(batch, 0, parse(batch))
        assert isinstance(again, memoryview)
        assert again.obj is batch

    def test_a_rewritten_batch_keeps_its_offsets_sequences_and_codec(self) -> None:
        batch = keyed(
            100, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2"),
            compression=Compression.LZ4, leader_epoch=7, producer_id=3, producer_epoch=2, base_sequence=50,
        )  # fmt: skip
        (cleaned,) = Cleaning([batch, keyed(104, (b"b", b"3"))]).run()[:1]
        before, after = parse(batch), parse(cleaned)
        assert after.record_count == 1
        for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
            assert getattr(after, name) == getattr(before, name)
        assert (after.last_sequence, after.compression) == (before.last_sequence, Compression.LZ4)

    def test_records_without_a_key_go(self) -> None:
        cleaning = Cleaning([keyed(0, (None, b"1"), (b"a", b"1"))])
        assert records_of(cleaning.run()) == [(1, b"a", b"1")]

    def test_a_full_map_ends_the_pass_and_the_next_one_continues(self) -> None:
        batches = [keyed(10 * n, *((b"%d" % k, b"%d" % n) for k in range(10))) for n in range(3)]
        first = Cleaning(batches, memory_bytes=7 * ENTRY_BYTES)
        cleaned = first.run()
        assert first.latest_offset == 5
        assert records_of(cleaned) == records_of(batches)
        second = Cleaning(cleaned, first_dirty_offset=first.latest_offset + 1)
        assert [offset for offset, _, _ in records_of(second.run())] == list(range(20, 30))

    def test_dirty_records_replace_clean_ones(self) -> None:
        batches = [keyed(0, (b"a", b"1"), (b"b", b"1")), keyed(2, (b"a", b"2"))]
        assert records_of(Cleaning(batches, first_dirty_offset=2).run()) == [(1, b"b", b"1"), (2, b"a", b"2")]

    def test_the_end_of_the_log_is_kept_even_without_records(self) -> None:
        batches = [keyed(0, (b"a", b"1")), keyed(1, (b"a", b"2")), keyed(2, (None, b"x"))]
        assert shape_of(Cleaning(batches, end_offset=3).run()) == [(1, 1, False), (2, 0, False)]

    def test_the_end_of_the_cleaned_part_is_kept_only_with_records(self) -> None:
        """As in Kafka 4.4: the batch that follows says where it begins."""
        batches = [keyed(0, (b"a", b"1")), keyed(1, (b"a", b"2")), keyed(2, (None, b"x")), keyed(3, (b"b", b"1"))]
        cleaned = Cleaning(batches, end_offset=3, high_watermark=4).run()
        assert shape_of(cleaned) == [(1, 1, False), (3, 1, False)]

    def test_a_corrupt_batch_is_refused(self) -> None:
        batch = bytearray(keyed(0, (b"a", b"1")))
        batch[61] = 99
        offset_map = OffsetMap(ROOMY_BYTES)
        with pytest.raises(CorruptRecordError):
            index_batch(offset_map, CleanedTransactions(), batch, 0, parse_batch_header(batch), 0)

    def test_a_pass_that_noted_every_key_accounts_for_the_gap_at_its_end(self) -> None:
        cleaning = Cleaning([keyed(0, (b"a", b"1"))], end_offset=50)
        cleaning.run()
        assert cleaning.cleaning.first_dirty_offset == 50

    def test_cleaning_before_indexing_is_a_programming_error(self) -> None:
        cleaning = CleaningPass(
            CleanableRange(0, 1, 0, 0, is_due=True),
            aborted=(),
            producers={},
            high_watermark=1,
            now_ms=0,
            delete_retention_ms=0,
            memory_bytes=ROOMY_BYTES,
        )
        batch = keyed(0, (b"a", b"1"))
        with pytest.raises(AssertionError, match="begin_rewrite"):
            cleaning.clean(batch, 0, parse(batch))


class TestTombstones:
    def test_a_tombstone_goes_when_its_horizon_has_passed(self) -> None:
        batches = [keyed(0, (b"a", b"1")), keyed(1, (b"a", None)), keyed(2, (b"b", b"1"))]
        cleaned = Cleaning(batches, now_ms=10_000).run()
        assert records_of(cleaned) == [(1, b"a", None), (2, b"b", b"1")]
        assert parse(cleaned[0]).delete_horizon_ms == 11_000
        assert next(iter_records(cleaned[0])).timestamp_ms == 5_000
        later = Cleaning(cleaned, now_ms=10_999, first_dirty_offset=3).run()
        assert later == cleaned
        assert records_of(Cleaning(later, now_ms=11_000, first_dirty_offset=3).run()) == [(2, b"b", b"1")]

    def test_the_horizon_is_set_once(self) -> None:
        batches = [keyed(0, (b"a", None), (b"b", b"1")), keyed(2, (b"b", b"2"))]
        cleaned = Cleaning(batches, now_ms=10_000).run()
        again = Cleaning(cleaned, now_ms=10_500).run()
        assert parse(again[0]).delete_horizon_ms == 11_000

    def test_a_tombstone_that_is_replaced_goes_at_once(self) -> None:
        batches = [keyed(0, (b"a", None)), keyed(1, (b"a", b"2"))]
        assert records_of(Cleaning(batches).run()) == [(1, b"a", b"2")]


class TestTransactions:
    def test_aborted_records_go_and_hide_nothing(self) -> None:
        batches = [keyed(0, (b"a", b"1")), transactional(1, (b"a", b"2")), marker(2, commit=False)]
        cleaning = Cleaning(batches, aborted=[AbortedTransaction(1, 1, 2, 3)])
        cleaned = cleaning.run()
        assert records_of(cleaned) == [(0, b"a", b"1")]
        assert shape_of(cleaned) == [(0, 1, False), (2, 1, True)]
        assert cleaning.retained_aborted == [AbortedTransaction(1, 1, 2, 3)]

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_marker_goes_in_two_steps_when_its_transaction_is_gone(self, commit: bool) -> None:
        aborted = [] if commit else [AbortedTransaction(1, 0, 1, 2)]
        batches = [transactional(0, (b"a", b"1")), marker(1, commit=commit), keyed(2, (b"a", b"2"))]
        first = Cleaning(batches, aborted=aborted, now_ms=10_000)
        batches = first.run()
        assert shape_of(batches) == [(1, 1, True), (2, 1, False)]
        assert parse(batches[0]).delete_horizon_ms is None
        second = Cleaning(batches, aborted=first.retained_aborted, now_ms=20_000)
        batches = second.run()
        assert parse(batches[0]).delete_horizon_ms == 21_000
        assert parse_end_txn_marker(batches[0]) == EndTxnMarker(1, 0, 0, commit)
        assert second.retained_aborted == []
        assert shape_of(Cleaning(batches, now_ms=20_999).run()) == [(1, 1, True), (2, 1, False)]
        assert shape_of(Cleaning(batches, now_ms=21_000).run()) == [(2, 1, False)]

    def test_a_marker_stays_while_its_transaction_is_in_the_index(self) -> None:
        """A pass that was given up after its rewrite leaves the index as it was: the next one must not drop markers."""
        aborted = [AbortedTransaction(1, 0, 1, 2)]
        batches = [marker(1, commit=False), keyed(2, (b"a", b"1"))]
        for now_ms in (10_000, 20_000, 30_000):
            batches = Cleaning(batches, aborted=aborted, now_ms=now_ms).run()
            assert shape_of(batches) == [(1, 1, True), (2, 1, False)]
            assert parse(batches[0]).delete_horizon_ms == 11_000
        assert shape_of(Cleaning(batches, now_ms=30_000).run()) == [(2, 1, False)]

    def test_an_older_aborted_transaction_does_not_swallow_later_ones(self) -> None:
        """Neither one that ended before the dirty part nor one whose marker the log no longer holds."""
        aborted = [AbortedTransaction(1, 0, 1, 2)]
        later = [transactional(2, (b"a", b"1")), marker(3, commit=True), transactional(4, (b"a", b"2"))]
        batches = [transactional(0, (b"b", b"1")), marker(1, commit=False), *later]
        cleaned = Cleaning(batches, aborted=aborted, first_dirty_offset=2).run()
        assert records_of(cleaned) == [(4, b"a", b"2")]
        assert records_of(Cleaning(later, aborted=aborted, first_dirty_offset=2).run()) == [(4, b"a", b"2")]

    def test_a_commit_marker_stays_while_a_record_does(self) -> None:
        batches = [transactional(0, (b"a", b"1"), (b"b", b"1")), marker(2, commit=True), keyed(3, (b"a", b"2"))]
        cleaned = Cleaning(Cleaning(batches).run(), now_ms=50_000).run()
        assert records_of(cleaned) == [(1, b"b", b"1"), (3, b"a", b"2")]
        assert parse(cleaned[1]).delete_horizon_ms is None

    def test_a_control_batch_of_another_kind_stays(self) -> None:
        record = Record(key=b"\0\0\0\2", value=b"leader change", timestamp_ms=0)
        batch = build_batch([record], base_offset=0, is_control=True)
        assert Cleaning([batch]).run() == [batch]


class TestProducers:
    def test_the_last_batch_of_an_active_producer_stays_empty(self) -> None:
        batch = keyed(0, (b"a", b"1"), (b"b", b"1"), producer_id=1, producer_epoch=4, base_sequence=9)
        batches = [batch, keyed(2, (b"a", b"2"), (b"b", b"2"))]
        assert shape_of(Cleaning(batches, producers={1: LastRecord(1, 4)}).run()) == [(0, 0, False), (2, 2, False)]
        (empty, _) = Cleaning(batches, producers={1: LastRecord(1, 4)}).run()
        header = parse(empty)
        assert (header.last_offset, header.last_sequence, header.producer_epoch) == (1, 10, 4)
        assert list(iter_records(empty)) == []
        assert shape_of(Cleaning([empty, batches[1]], producers={}).run()) == [(2, 2, False)]

    def test_an_aborted_last_batch_stays_empty(self) -> None:
        batches = [transactional(0, (b"a", b"1")), marker(1, commit=False)]
        cleaned = Cleaning(batches, aborted=[AbortedTransaction(1, 0, 1, 2)], producers={1: LastRecord(0, 0)}).run()
        assert shape_of(cleaned) == [(0, 0, False), (1, 1, True)]

    def test_the_marker_of_a_producer_without_data_stays_for_its_epoch(self) -> None:
        batches = [marker(0, commit=True), keyed(1, (b"a", b"1"))]
        producers = {1: LastRecord(-1, 0)}
        batches = Cleaning(batches, producers=producers, now_ms=0).run()
        batches = Cleaning(batches, producers=producers, now_ms=RETENTION_MS).run()
        assert shape_of(batches) == [(0, 0, True), (1, 1, False)]
        assert shape_of(Cleaning(batches, producers={1: LastRecord(-1, 1)}).run()) == [(1, 1, False)]

    def test_last_records_are_taken_from_the_producer_state(self) -> None:
        state = ProducerStateManager()
        state.replay(parse(keyed(0, (b"a", b"1"), producer_id=1, producer_epoch=4, base_sequence=9)))
        marker_batch = marker(1, commit=True, producer_id=2)
        state.replay(parse(marker_batch), parse_end_txn_marker(marker_batch))
        assert last_records(state) == {1: LastRecord(0, 4), 2: LastRecord(-1, 0)}
        assert last_records(None) == {}


@dataclass(frozen=True)
class Written:
    """A record of the model: everything ever appended, and how its transaction ended (None: still open)."""

    offset: int
    key: bytes
    value: bytes | None
    transaction: int | None


class CompactionMachine(RuleBasedStateMachine):
    """Random appends, transactions and passes. The model is a list of all records ever written."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.now_ms = 0
        self.first_dirty_offset = 0
        self.cleaned_up_to = 0
        self.state = ProducerStateManager()
        self.aborted = AbortedTransactions()
        self.written: dict[int, Written] = {}
        self.outcomes: dict[int, bool] = {}
        self.open: dict[int, int] = {}
        self.transactions_begun = 0
        self.horizons: dict[int, int] = {}
        self.removed: set[int] = set()

    def append(self, batch: bytes) -> None:
        header = parse(batch)
        self.state.replay(header, parse_end_txn_marker(batch) if header.is_control else None)
        self.state.advance_high_watermark(header.next_offset)
        self.batches.append(batch)
        self.end_offset = header.next_offset

    @rule(
        keys=st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=4),
        tombstone=st.integers(0, 5),
        producer_id=st.sampled_from([None, 0, 1]),
        in_transaction=st.booleans(),
        compression=st.sampled_from([Compression.NONE, Compression.GZIP]),
    )
    def produce(
        self, keys: list[bytes], tombstone: int, producer_id: int | None, in_transaction: bool, compression: Compression
    ) -> None:
        transaction = None
        options: dict[str, object] = {"compression": compression}
        if producer_id is not None:
            if producer_id not in self.open and in_transaction:
                self.open[producer_id] = self.transactions_begun
                self.transactions_begun += 1
            transaction = self.open.get(producer_id)
            entry = self.state.get(producer_id)
            options |= {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": entry.last_sequence + 1 if entry else 0,
                "is_transactional": transaction is not None,
            }
        pairs = []
        for index, key in enumerate(keys):
            offset = self.end_offset + index
            value = None if index == tombstone else b"%d" % offset
            self.written[offset] = Written(offset, key, value, transaction)
            pairs.append((key, value))
        self.append(keyed(self.end_offset, *pairs, **options))

    @rule(producer_id=st.integers(0, 1), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        transaction = self.open.pop(producer_id, None)
        if transaction is not None:
            self.outcomes[transaction] = commit
        batch = marker(self.end_offset, commit=commit, producer_id=producer_id)
        completed = ProducerStateManager()
        completed.restore(self.end_offset, self.state.active_producers())
        result = completed.replay(parse(batch), parse_end_txn_marker(batch))
        if result is not None and result.is_aborted:
            self.aborted.append(producer_id, result.first_offset, result.last_offset, result.last_stable_offset)
        self.state = completed
        self.batches.append(batch)
        self.end_offset += 1
        self.state.advance_high_watermark(self.end_offset)

    @rule(keys=st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=2), commit=st.booleans())
    def whole_transaction(self, keys: list[bytes], commit: bool) -> None:
        """What makes histories of several transactions of one producer likely."""
        self.produce(keys, 9, 0, in_transaction=True, compression=Compression.NONE)
        self.end_transaction(0, commit=commit)

    @rule(duration_ms=st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS]))
    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms

    @rule(producer_id=st.integers(0, 1))
    def forget_an_idle_producer(self, producer_id: int) -> None:
        entries = [entry for entry in self.state.active_producers() if entry.producer_id != producer_id]
        if producer_id not in self.open:
            self.state.restore(self.end_offset, entries)

    @rule(memory=st.sampled_from([3, 5, 1_000]), lag=st.integers(0, 3), given_up=st.booleans())
    def compact(self, memory: int, lag: int, given_up: bool) -> None:
        unstable = first_open_offset(self.state)
        limit = self.end_offset if unstable is None else unstable
        ends = [parse(batch).next_offset for batch in self.batches if parse(batch).next_offset <= limit]
        if len(ends) <= lag:
            return
        end_offset = max(ends[len(ends) - 1 - lag], self.cleaned_up_to)
        cleaning = Cleaning(
            self.batches,
            now_ms=self.now_ms,
            aborted=[transaction for transaction in self.aborted if transaction.first_offset < end_offset],
            producers=last_records(self.state),
            first_dirty_offset=min(self.first_dirty_offset, end_offset),
            end_offset=end_offset,
            high_watermark=self.end_offset,
            memory_bytes=memory * ENTRY_BYTES,
        )
        self.expect(cleaning, end_offset)
        self.cleaned_up_to = max(self.cleaned_up_to, end_offset)
        if not given_up:
            self.aborted = self.aborted.replaced_before(end_offset, cleaning.retained_aborted)
            self.first_dirty_offset = max(self.first_dirty_offset, cleaning.latest_offset + 1)

    def expect(self, cleaning: Cleaning, end_offset: int) -> None:
        """Run a pass and compare with the records that the model says must be there."""
        batches_before = {parse(batch).base_offset: parse(batch) for batch in self.batches}
        present = {offset for offset, _, _ in records_of(self.batches)}
        self.batches = cleaning.run()
        latest: dict[bytes, int] = {}
        for offset in sorted(self.written):
            record = self.written[offset]
            if offset <= cleaning.latest_offset and not self.is_aborted(record):
                latest[record.key] = offset
        expected: set[int] = set()
        holds_tombstone: set[int] = set()
        for header in batches_before.values():
            for offset in range(header.base_offset, header.next_offset):
                record_or_none = self.written.get(offset)
                if record_or_none is None or offset not in present:
                    continue
                record = record_or_none
                if offset < end_offset and self.is_aborted(record):
                    continue
                if offset <= cleaning.latest_offset:
                    if latest[record.key] != offset:
                        continue
                    if record.value is None and self.horizons.get(header.base_offset, self.now_ms + 1) <= self.now_ms:
                        continue
                expected.add(offset)
                if record.value is None and header.base_offset <= cleaning.latest_offset:
                    holds_tombstone.add(header.base_offset)
        for base_offset in holds_tombstone:
            self.horizons.setdefault(base_offset, self.now_ms + RETENTION_MS)
        assert {offset for offset, _, _ in records_of(self.batches)} == expected

    def is_aborted(self, record: Written) -> bool:
        return record.transaction is not None and self.outcomes.get(record.transaction) is False

    @invariant()
    def records_are_what_was_written(self) -> None:
        for offset, key, value in records_of(self.batches):
            record = self.written[offset]
            assert (key, value) == (record.key, record.value)

    @invariant()
    def offsets_ascend_and_the_end_is_known(self) -> None:
        next_offset = 0
        for header in map(parse, self.batches):
            assert header.base_offset >= next_offset
            next_offset = header.next_offset
        assert next_offset == self.end_offset

    @invariant()
    def every_key_has_its_latest_committed_value(self) -> None:
        """What a read_committed reader ends up with is what one of the whole history would."""
        first_open = first_open_offset(self.state)
        stable = self.end_offset if first_open is None else first_open
        whole: dict[bytes, bytes | None] = {}
        for offset in sorted(self.written):
            record = self.written[offset]
            if offset < stable and not self.is_aborted(record):
                whole[record.key] = record.value
        assert {key: value for key, value in self.read_committed(stable).items() if value is not None} == {
            key: value for key, value in whole.items() if value is not None
        }

    def read_committed(self, stable: int) -> dict[bytes, bytes | None]:
        """As a consumer does: skip the batches of aborted transactions, until their markers."""
        pending = sorted(self.aborted, key=lambda transaction: transaction.first_offset)
        skipping: set[int] = set()
        found: dict[bytes, bytes | None] = {}
        for batch in self.batches:
            header = parse(batch)
            if header.base_offset >= stable:
                break
            while pending and pending[0].first_offset <= header.last_offset:
                skipping.add(pending.pop(0).producer_id)
            if header.is_control:
                end = parse_end_txn_marker(batch)
                if end is not None and not end.is_commit:
                    skipping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipping):
                for record in iter_records(batch):
                    assert record.key is not None
                    found[record.key] = record.value
        return found

    @invariant()
    def producers_are_rebuilt_as_they_are(self) -> None:
        """A recovery that reads only what compaction left still recognises every active producer."""
        rebuilt = ProducerStateManager()
        for batch in self.batches:
            header = parse(batch)
            rebuilt.replay(header, parse_end_txn_marker(batch) if header.is_control else None)
        for entry in self.state.active_producers():
            other = rebuilt.get(entry.producer_id)
            if entry.batches:
                assert other is not None
                assert (other.last_sequence, other.last_data_offset) == (entry.last_sequence, entry.last_data_offset)
                assert other.producer_epoch == entry.producer_epoch
            assert (other is not None and other.in_transaction) == entry.in_transaction


CompactionMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestCompactionModel = CompactionMachine.TestCase
