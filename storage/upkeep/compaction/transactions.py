"""The transactions that a compaction pass walks through (Kafka's `CleanedTransactionMetadata`).

Aborted records may go at once. A marker must stay until all records of its transaction are gone: a reader that still
finds one needs to know how it ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

from ottla.storage.state.aborted_transactions import AbortedTransaction

if TYPE_CHECKING:
    from ottla.kproto.records import BatchHeader, EndTxnMarker


_NO_TRANSACTION: tuple[AbortedTransaction | None, bool] = (None, False)


class MarkerUse(Enum):
    """What a control batch is still good for."""

    NEEDED = "needed"
    """Records of its transaction are in the log, or it does not end a transaction."""
    INDEXED = "indexed"
    """No records are left, but the transaction was in the index when the pass began; it leaves it with this pass.

    Until then the marker must stay: it is where readers stop to skip the producer's records.
    """
    NONE = "none"
    """Nothing is left of its transaction."""


class CleanedTransactions:
    """Follows the batches of one partition in offset order, from the log start offset on.

    `aborted` is the part of the partition's index that the walk covers. Batches that are passed by without being
    rewritten must be shown as well (`on_batch`, `on_marker`): a transaction may have begun among them.
    """

    __slots__ = ("_aborted", "_next", "_ongoing_aborted", "_ongoing_committed", "retained_aborted")

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset)
        self._next = 0
        # Producer id -> its aborted transaction, and whether a batch of it is still in the log.
        self._ongoing_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._ongoing_committed: set[int] = set()
        self.retained_aborted: list[AbortedTransaction] = []
        """The aborted transactions whose marker stays, in the order of their markers.

        After a pass up to an end offset the partition's index is these, then all whose marker lies beyond it.
        """

    def on_batch(self, header: BatchHeader) -> bool:
        """Walk over a data batch; True if it belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        transaction, _ = self._ongoing_aborted.get(header.producer_id, _NO_TRANSACTION)
        if transaction is None or header.base_offset > transaction.last_offset:
            self._ongoing_committed.add(header.producer_id)
            return False
        self._ongoing_aborted[header.producer_id] = (transaction, True)
        return True

    def on_marker(self, header: BatchHeader, marker: EndTxnMarker | None) -> MarkerUse:
        """Walk over a control batch; `marker` is None for one of another kind, and for one that is empty already."""
        self._begin_up_to(header.last_offset)
        if marker is None:
            return MarkerUse.NEEDED if header.record_count else MarkerUse.NONE
        if marker.is_commit:
            had_records = header.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(header.producer_id)
            return MarkerUse.NEEDED if had_records else MarkerUse.NONE
        transaction, had_records = self._ongoing_aborted.pop(header.producer_id, _NO_TRANSACTION)
        if transaction is None or header.base_offset > transaction.last_offset:
            return MarkerUse.NONE
        if not had_records:
            return MarkerUse.INDEXED
        self.retained_aborted.append(transaction)
        return MarkerUse.NEEDED

    def _begin_up_to(self, offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= offset:
            transaction = self._aborted[self._next]
            # One before it whose marker the walk did not meet, because it began later, is over: see `on_batch`.
            self._ongoing_aborted[transaction.producer_id] = (transaction, False)
            self._next += 1
