"""The transactions of one partition of `__transaction_state`: what the log says, held in memory."""

from collections.abc import Iterator
from typing import Protocol

import trio

from ottla.coordinator.replay import CoordinatorRecord, Producer, SkippedRecordError
from ottla.coordinator.transaction import records
from ottla.coordinator.transaction.state import Transaction
from ottla.kproto.records import EndTxnMarker


class Completing:
    """A decided transaction on its way: `scope` gives it up, `over` is set when it is complete or given up."""

    __slots__ = ("over", "scope")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.over = trio.Event()


class Entry:
    """One transactional id: its committed state (None until there is one), and what keeps its operations in order.

    It belongs to its shard while it is in `entries`; check that again after waiting for `lock`.
    """

    __slots__ = ("completing", "lock", "transaction")

    def __init__(self, transaction: Transaction | None) -> None:
        self.transaction = transaction
        self.lock = trio.Lock()
        #: What carries the decided transaction through; None while there is none.
        self.completing: Completing | None = None

    def commit(self, after: Transaction) -> None:
        """A step is committed: what replay has set, plus the last epoch, which is not in the record."""
        self.transaction = after

    def begin_completing(self) -> Completing:
        """The outcome is decided and is carried through from now on."""
        self.completing = Completing()
        return self.completing

    def end_completing(self) -> None:
        """It is carried through, or somebody else goes on."""
        self.completing = None


class Resumption(Protocol):
    """Carries on with what was under way."""

    def resume(self, shard: "TransactionShard") -> None:
        """The partition has been replayed."""


class TransactionShard:
    """Implements the runtime's `Shard`: state is what replay makes of the records."""

    def __init__(self, partition: int, resumption: "Resumption | None" = None) -> None:
        self.partition = partition
        self.entries: dict[str, Entry] = {}
        self._resumption = resumption

    def transactions(self) -> Iterator[Transaction]:
        """The transactions of now, each as it is when it is taken."""
        return (entry.transaction for entry in list(self.entries.values()) if entry.transaction is not None)

    def holds(self, transactional_id: str, entry: Entry) -> bool:
        """Whether this is still the entry of the transactional id: it was not expired, and the partition is here."""
        return self.entries.get(transactional_id) is entry

    def forget_unused(self, transactional_id: str, entry: Entry) -> None:
        """Drop an entry that was made for a new transactional id, if nothing was stored for it."""
        if entry.transaction is None and self.holds(transactional_id, entry):
            del self.entries[transactional_id]

    def replay(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        transactional_id, transaction = records.parse(record)
        entry = self.entries.get(transactional_id)
        if transaction is None:
            self.entries.pop(transactional_id, None)
        elif entry is None:
            self.entries[transactional_id] = Entry(transaction)
        else:
            entry.transaction = transaction

    def replay_marker(self, marker: EndTxnMarker) -> None:
        raise SkippedRecordError("a transaction's marker, and no transaction writes to this topic")

    def loaded(self) -> None:
        if self._resumption is not None:
            self._resumption.resume(self)

    def unloaded(self) -> None:
        for entry in self.entries.values():
            if entry.completing is not None:
                entry.completing.scope.cancel()
        self.entries.clear()
