"""The state of one transactional id, as its record has it, and the steps that lead from one state to the next.

A state is immutable: a step makes a new one, which counts once its record is committed. Kafka's counterpart is
TransactionMetadata. No step leads to an epoch beyond MAX_EPOCH, whatever state it begins with. The states:

    EMPTY            a producer id was given, nothing was written yet        add partitions -> ONGOING
    ONGOING          partitions take part                                    end -> PREPARE_COMMIT or PREPARE_ABORT
    PREPARE_…        the outcome is decided; markers are being written       all written -> COMPLETE_…
    COMPLETE_…       the transaction is over                                 add partitions -> ONGOING
"""

from enum import IntEnum
from typing import Final, NamedTuple

from ottla.coordinator.errors import ProducerFencedError

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 2**15 - 1
EXHAUSTED_EPOCH: Final = MAX_EPOCH - 1
"""From this epoch on a producer gets a new id: the last epoch is left for fencing it."""
TRANSACTION_V2: Final = 2
"""The transaction version of KIP-890: every end raises the epoch."""


class TransactionStatus(IntEnum):
    """The numbers are those of the record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that the administrative APIs answer with."""
        return "".join(part.capitalize() for part in self.name.split("_"))


PREPARED: Final = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


class Partition(NamedTuple):
    topic: str
    partition: int


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    """All that is known about a transactional id. `last_epoch` is not in the record: it only helps a retry."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[Partition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    client_version: int = 0
    """The transaction version of the last step: 2 for KIP-890, whose every end raises the epoch."""

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def is_prepared(self) -> bool:
        return self.status in PREPARED

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def raised_epoch(self) -> int:
        return min(self.producer_epoch + 1, MAX_EPOCH)

    def knows(self, expected: ProducerIdAndEpoch) -> bool:
        """Whether a producer that names its former identity may go on (KIP-360)."""
        return (
            self.producer_epoch == NO_EPOCH
            or expected.producer_id == self.producer_id
            or (expected.producer_id == self.previous_producer_id and expected.epoch >= EXHAUSTED_EPOCH)
        )

    def initialized(self, expected: ProducerIdAndEpoch | None, timeout_ms: int, now_ms: int) -> "Transaction":
        """The next epoch for a producer that starts (`expected` None) or recovers; a retry gets the same again."""
        epoch, last = self.raised_epoch, NO_EPOCH
        if expected is not None:
            if self.producer_epoch in (NO_EPOCH, expected.epoch):
                last = self.producer_epoch
            elif expected.epoch == self.last_epoch:
                epoch, last = self.producer_epoch, self.last_epoch
            else:
                raise ProducerFencedError(f"epoch {expected.epoch} of {self.transactional_id} is outdated")
        return self._replace(
            previous_producer_id=self.producer_id,
            producer_epoch=epoch,
            last_epoch=last,
            timeout_ms=timeout_ms,
            status=TransactionStatus.EMPTY,
            partitions=frozenset(),
            start_ms=-1,
            update_ms=now_ms,
        )

    def rotated(self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last_epoch: bool) -> "Transaction":
        """A new producer id, because the epochs of the old one are used up."""
        return self._replace(
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=0,
            last_epoch=self.producer_epoch if keep_last_epoch else NO_EPOCH,
            timeout_ms=timeout_ms,
            status=TransactionStatus.EMPTY,
            partitions=frozenset(),
            start_ms=-1,
            update_ms=now_ms,
        )

    def with_partitions(self, added: frozenset[Partition], client_version: int, now_ms: int) -> "Transaction":
        """The transaction goes on, or begins, with these partitions."""
        ongoing = self.status is TransactionStatus.ONGOING
        return self._replace(
            previous_producer_id=self.producer_id,
            status=TransactionStatus.ONGOING,
            partitions=self.partitions | added if ongoing else added,
            start_ms=self.start_ms if ongoing else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(self, *, commit: bool, version: int, next_producer_id: int, now_ms: int) -> "Transaction":
        """The outcome is decided. With transactions v2 (KIP-890) the markers carry the next epoch."""
        raises = version >= TRANSACTION_V2
        started = self.status is TransactionStatus.ONGOING
        return self._replace(
            status=TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT,
            previous_producer_id=self.producer_id,
            producer_epoch=self.raised_epoch if raises else self.producer_epoch,
            last_epoch=self.producer_epoch if raises else self.last_epoch,
            next_producer_id=next_producer_id,
            partitions=self.partitions if started else frozenset(),
            start_ms=self.start_ms if started else now_ms,
            update_ms=now_ms,
            client_version=version,
        )

    def fenced(self, *, version: int, next_producer_id: int, now_ms: int) -> "Transaction":
        """An ongoing transaction is aborted under the next epoch, which its producer does not have.

        `version` is the cluster's. From 2 on this is an abort like those of producers, and so the former epoch is known
        to belong to who recovers; before, it is forgotten.
        """
        if version >= TRANSACTION_V2:
            return self.prepared(commit=False, version=version, next_producer_id=next_producer_id, now_ms=now_ms)
        raised = self._replace(producer_epoch=self.raised_epoch, last_epoch=NO_EPOCH)
        return raised.prepared(commit=False, version=version, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms)

    def completed(self, now_ms: int) -> "Transaction":
        """All markers are written."""
        assert self.is_prepared
        commit = self.status is TransactionStatus.PREPARE_COMMIT
        done = self._replace(
            previous_producer_id=self.producer_id,
            status=TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT,
            partitions=frozenset(),
            update_ms=now_ms,
        )
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return done._replace(producer_id=self.next_producer_id, next_producer_id=NO_PRODUCER_ID, producer_epoch=0)
