"""Which of the batches that were fetched belong to aborted transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.kproto.records import BatchHeader


class AbortedTransactions:
    """The aborted transactions of one partition, as a Fetch's answer lists them (KIP-98)."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._starts = sorted(transactions, key=lambda item: item[1])
        self._open: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        """Whether a batch is not for the reader: a marker, or part of an aborted transaction. In offset order."""
        while self._starts and self._starts[0][1] <= header.base_offset:
            self._open.add(self._starts.pop(0)[0])
        if header.is_control:
            self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
