"""The aborted transactions of one partition, which a read_committed consumer must skip (Kafka's `TransactionIndex`)."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.storage.errors import CorruptLogError

_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qqqq")


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its producer, its first record's offset, its marker's offset.

    `last_stable_offset` was the partition's when the marker was written: no transaction that ended later began
    before it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions:
    """The index, ordered by the offset of the abort marker, 32 bytes of memory each.

    It only grows. Where transactions leave it another index takes its place, so that a reader who holds this one knows
    all that were aborted among the records that it has read, also if these are deleted meanwhile.
    """

    __slots__ = ("_first_offsets", "_last_offsets", "_last_stable_offsets", "_producer_ids")

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._last_stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(
            AbortedTransaction,
            self._producer_ids,
            self._first_offsets,
            self._last_offsets,
            self._last_stable_offsets,
        )

    def append(self, producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int) -> None:
        """Add a transaction whose marker was just appended; ValueError unless it is the last one."""
        if self._last_offsets and last_offset <= self._last_offsets[-1]:
            raise ValueError(f"abort marker at offset {last_offset} follows one at {self._last_offsets[-1]}")
        self._producer_ids.append(producer_id)
        self._first_offsets.append(first_offset)
        self._last_offsets.append(last_offset)
        self._last_stable_offsets.append(last_stable_offset)

    def collect(self, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """The transactions with records in [fetch_offset, upper_bound), ordered by first offset."""
        found = []
        for index in range(bisect_left(self._last_offsets, fetch_offset), len(self._last_offsets)):
            if self._first_offsets[index] < upper_bound:
                found.append(self._entry(index))
            if self._last_stable_offsets[index] >= upper_bound:
                break
        found.sort(key=_first_offset)
        return found

    def truncated_from_end(self, end_offset: int) -> AbortedTransactions:
        """The index of a log that ends at `end_offset`: transactions whose marker is gone are no longer aborted."""
        return self._part(0, bisect_left(self._last_offsets, end_offset))

    def truncated_from_start(self, start_offset: int) -> AbortedTransactions:
        """The index of a log that begins at `start_offset`, without the transactions that ended before it."""
        return self._part(bisect_left(self._last_offsets, start_offset), len(self._last_offsets))

    def replaced_before(self, end_offset: int, transactions: Iterable[AbortedTransaction]) -> AbortedTransactions:
        """The index after a compaction up to `end_offset`: of the transactions that ended before it, these are left.

        ValueError unless their markers are in order and lie before it.
        """
        kept = list(self)[bisect_left(self._last_offsets, end_offset) :]
        left = list(transactions)
        offsets = [transaction.last_offset for transaction in left]
        if any(offset >= end_offset for offset in offsets) or sorted(set(offsets)) != offsets:
            raise ValueError("the transactions left must be in order and end before what is kept")
        index = AbortedTransactions()
        for transaction in (*left, *kept):
            index.append(*transaction)
        return index

    def to_bytes(self) -> bytes:
        """Count (int32), then producer id, first, last and last stable offset of each (int64), big-endian."""
        fields = array("q", bytes(_ENTRY.size * len(self)))
        fields[0::4] = self._producer_ids
        fields[1::4] = self._first_offsets
        fields[2::4] = self._last_offsets
        fields[3::4] = self._last_stable_offsets
        if sys.byteorder == "little":
            fields.byteswap()
        return _COUNT.pack(len(self)) + fields.tobytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> AbortedTransactions:
        """What `to_bytes` wrote; CorruptLogError if it cannot be that."""
        if len(content) < _COUNT.size or len(content) != _COUNT.size + _COUNT.unpack_from(content)[0] * _ENTRY.size:
            raise CorruptLogError("an aborted transaction index has a wrong length")
        index = cls()
        try:
            for fields in _ENTRY.iter_unpack(memoryview(content)[_COUNT.size :]):
                index.append(*fields)
        except ValueError as error:
            raise CorruptLogError("an aborted transaction index is out of order") from error
        return index

    def _entry(self, index: int) -> AbortedTransaction:
        return AbortedTransaction(
            self._producer_ids[index],
            self._first_offsets[index],
            self._last_offsets[index],
            self._last_stable_offsets[index],
        )

    def _part(self, first: int, end: int) -> AbortedTransactions:
        if first == 0 and end == len(self):
            return self
        index = AbortedTransactions()
        index._producer_ids = self._producer_ids[first:end]
        index._first_offsets = self._first_offsets[first:end]
        index._last_offsets = self._last_offsets[first:end]
        index._last_stable_offsets = self._last_stable_offsets[first:end]
        return index


def _first_offset(transaction: AbortedTransaction) -> int:
    return transaction.first_offset
