"""The aborted-transaction index: whatever a read_committed reader must skip is collected, against a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.errors import CorruptLogError
from ottla.storage.state.aborted_transactions import AbortedTransaction, AbortedTransactions


def test_transactions_are_collected_where_they_overlap() -> None:
    index = AbortedTransactions()
    index.append(producer_id=1, first_offset=10, last_offset=20, last_stable_offset=5)
    index.append(producer_id=2, first_offset=5, last_offset=25, last_stable_offset=26)
    index.append(producer_id=3, first_offset=30, last_offset=40, last_stable_offset=41)
    first, second, third = index
    assert index.collect(0, 100) == [second, first, third]
    assert index.collect(21, 100) == [second, third]
    assert index.collect(0, 30) == [second, first]
    assert index.collect(0, 6) == [second]
    assert index.collect(41, 100) == []


def test_markers_come_in_order() -> None:
    index = AbortedTransactions()
    index.append(1, 0, 10, 11)
    with pytest.raises(ValueError, match="follows"):
        index.append(2, 5, 10, 11)


def test_damage_is_noticed() -> None:
    index = AbortedTransactions()
    index.append(1, 0, 10, 11)
    index.append(2, 5, 20, 21)
    content = index.to_bytes()
    for damaged in (b"", content[:-1], content + b"\0", content[:4] + content[36:] + content[4:36]):
        with pytest.raises(CorruptLogError):
            AbortedTransactions.from_bytes(damaged)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[AbortedTransaction], int]:
    """Transactions as a log has them: random batches and ends of up to four producers at a time."""
    open_since: dict[int, int] = {}
    aborted: list[AbortedTransaction] = []
    offset = 0
    for _ in range(draw(st.integers(0, 40))):
        producer_id = draw(st.integers(0, 3))
        if producer_id not in open_since:
            open_since[producer_id] = offset
        elif draw(st.booleans()):
            first_offset = open_since.pop(producer_id)
            stable = min(open_since.values(), default=offset + 1)
            if draw(st.booleans()):
                aborted.append(AbortedTransaction(producer_id, first_offset, offset, stable))
        offset += draw(st.integers(1, 3))
    return aborted, offset


def index_of(aborted: list[AbortedTransaction]) -> AbortedTransactions:
    index = AbortedTransactions()
    for transaction in aborted:
        index.append(*transaction)
    return index


@given(histories(), st.data())
def test_collect_equals_a_scan(history: tuple[list[AbortedTransaction], int], data: st.DataObject) -> None:
    aborted, end_offset = history
    fetch_offset = data.draw(st.integers(0, end_offset))
    upper_bound = data.draw(st.integers(fetch_offset, end_offset))
    overlapping = [
        transaction
        for transaction in aborted
        if transaction.last_offset >= fetch_offset and transaction.first_offset < upper_bound
    ]
    expected = sorted(overlapping, key=lambda transaction: transaction.first_offset)
    assert index_of(aborted).collect(fetch_offset, upper_bound) == expected


@given(histories(), st.data())
def test_truncation_keeps_what_lies_within(history: tuple[list[AbortedTransaction], int], data: st.DataObject) -> None:
    aborted, end_offset = history
    index = index_of(aborted)
    start = data.draw(st.integers(0, end_offset))
    end = data.draw(st.integers(start, end_offset))
    kept = index.truncated_from_start(start).truncated_from_end(end)
    assert list(kept) == [transaction for transaction in aborted if start <= transaction.last_offset < end]
    assert len(kept) == len(list(kept))
    assert list(index) == aborted, "who holds it knows less than before"


@given(histories())
def test_bytes_and_back(history: tuple[list[AbortedTransaction], int]) -> None:
    aborted, _ = history
    assert list(AbortedTransactions.from_bytes(index_of(aborted).to_bytes())) == aborted


@given(histories(), st.data())
def test_compaction_replaces_what_it_cleaned(
    history: tuple[list[AbortedTransaction], int], data: st.DataObject
) -> None:
    aborted, end_offset = history
    index = index_of(aborted)
    end = data.draw(st.integers(0, end_offset))
    cleaned = [transaction for transaction in aborted if transaction.last_offset < end]
    left = [transaction for transaction in cleaned if data.draw(st.booleans())]
    index = index.replaced_before(end, left)
    assert list(index) == left + [transaction for transaction in aborted if transaction.last_offset >= end]


def test_compaction_cannot_invent_what_is_beyond_it() -> None:
    index = index_of([AbortedTransaction(1, 0, 10, 11)])
    for wrong in (
        [AbortedTransaction(1, 0, 5, 6)],
        [AbortedTransaction(1, 0, 3, 6), AbortedTransaction(1, 0, 2, 6)],
    ):
        with pytest.raises(ValueError, match="in order"):
            index.replaced_before(5, wrong)
    assert len(index) == 1
