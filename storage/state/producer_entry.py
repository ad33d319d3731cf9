"""One producer's state in one partition, and the rules by which its next batch or marker is accepted.

The rules are those of Kafka's `ProducerAppendInfo`; nothing here changes state but the methods of `ProducerEntry`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)

if TYPE_CHECKING:
    from ottla.kproto.records import BatchHeader, EndTxnMarker

BATCHES_RETAINED = 5
"""How many batches a producer may have in flight, and so how many can come twice."""

NONE = -1
_SEQUENCE_MODULUS = 1 << 31


class BatchMetadata(NamedTuple):
    """One batch of a producer, as far as a duplicate of it must be recognised and answered."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_sequence(self) -> int:
        """The first record's sequence: it wraps from 2147483647 to 0."""
        if self.last_sequence < 0:
            return self.last_sequence
        return (self.last_sequence - self.offset_delta) % _SEQUENCE_MODULUS

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """The state of one producer id; -1 stands for what is not known (`transaction_first_offset`: no transaction)."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "frozen",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NONE,
        coordinator_epoch: int = NONE,
        last_timestamp_ms: int = NONE,
        transaction_first_offset: int = NONE,
        batches: Iterable[BatchMetadata] = (),
        *,
        frozen: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.transaction_first_offset = transaction_first_offset
        self.batches = list(batches)
        #: How often its manager had been frozen when this entry was made.
        self.frozen = frozen

    def copy(self, frozen: int) -> ProducerEntry:
        """The same, to be changed alone."""
        return ProducerEntry(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp_ms,
            self.transaction_first_offset,
            self.batches,
            frozen=frozen,
        )

    @property
    def last_sequence(self) -> int:
        """The last sequence seen in this epoch; -1 if none."""
        return self.batches[-1].last_sequence if self.batches else NONE

    @property
    def last_data_offset(self) -> int:
        """The offset of the producer's last record; -1 if its batches are unknown."""
        return self.batches[-1].last_offset if self.batches else NONE

    @property
    def in_transaction(self) -> bool:
        return self.transaction_first_offset >= 0

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch with exactly these sequences and epoch."""
        if header.producer_epoch == self.producer_epoch:
            base_sequence, last_sequence = header.base_sequence, header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.base_sequence == base_sequence:
                    return batch
        return None

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        self.set_epoch(producer_epoch)
        if len(self.batches) == BATCHES_RETAINED:
            del self.batches[0]
        self.batches.append(batch)
        self.last_timestamp_ms = batch.timestamp_ms

    def begin_transaction(self, first_offset: int) -> None:
        """Its first batch in this partition was added."""
        self.transaction_first_offset = first_offset

    def end_transaction(self, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int) -> int:
        """Its marker was added; returns where the transaction began, -1 if nothing of it is here."""
        first_offset = self.transaction_first_offset
        self.set_epoch(producer_epoch)
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = timestamp_ms
        self.transaction_first_offset = NONE
        return first_offset

    def forget_from(self, offset: int) -> None:
        """Forget the batches from an offset on; at least one must lie before it."""
        while self.batches[-1].last_offset >= offset:
            del self.batches[-1]
        self.last_timestamp_ms = self.batches[-1].timestamp_ms

    def set_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


def check_marker_epoch(entry: ProducerEntry | None, header: BatchHeader, transaction_version: int) -> None:
    """InvalidProducerEpochError for a marker of an older transaction.

    Transactions v2 bump the epoch with every marker; before, a marker carried the epoch of its transaction.
    """
    if entry is None or header.producer_epoch > entry.producer_epoch:
        return
    # A v2 coordinator that did not hear the answer writes its marker again, after the end of the transaction.
    repeated = header.producer_epoch == entry.producer_epoch and (transaction_version < 2 or not entry.in_transaction)
    if repeated:
        return
    raise InvalidProducerEpochError(
        f"marker for producer {header.producer_id} has epoch {header.producer_epoch}, "
        f"the last seen is {entry.producer_epoch} (transaction version {transaction_version})"
    )


def check_producer_epoch(entry: ProducerEntry | None, header: BatchHeader) -> None:
    """InvalidProducerEpochError for a batch of a fenced producer."""
    if entry is not None and header.producer_epoch < entry.producer_epoch:
        raise InvalidProducerEpochError(
            f"producer {header.producer_id} has epoch {header.producer_epoch}, the last seen is {entry.producer_epoch}"
        )


def check_coordinator_epoch(entry: ProducerEntry | None, header: BatchHeader, marker: EndTxnMarker) -> None:
    """TransactionCoordinatorFencedError for a marker of a coordinator that is no longer one."""
    if entry is not None and entry.coordinator_epoch > marker.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"marker for producer {header.producer_id} comes from coordinator epoch {marker.coordinator_epoch}, "
            f"the last seen is {entry.coordinator_epoch}"
        )


def check_sequence(entry: ProducerEntry | None, header: BatchHeader, lowest: int | None, *, is_v2: bool) -> None:
    """OutOfOrderSequenceError unless the batch follows the producer's last one; any may be the first that is known.

    `lowest` is the least sequence of its epoch that was to be verified. Under transactions v2 (`is_v2`) the first is 0.
    """
    sequence = header.base_sequence
    if lowest is not None and sequence > lowest:
        raise _out_of_order(header, lowest)
    if is_v2 and sequence != 0 and (entry is None or not entry.batches):
        raise _out_of_order(header, 0)
    if entry is None or entry.producer_epoch == NONE:
        return
    if header.producer_epoch != entry.producer_epoch:
        if sequence != 0:
            raise _out_of_order(header, 0)
        return
    last_sequence = entry.last_sequence
    expected = 0 if last_sequence == _SEQUENCE_MODULUS - 1 else last_sequence + 1
    if sequence != expected:
        raise _out_of_order(header, expected)


def _out_of_order(header: BatchHeader, expected: int) -> OutOfOrderSequenceError:
    return OutOfOrderSequenceError(
        f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence}, "
        f"expected is {expected}"
    )
