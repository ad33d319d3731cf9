"""What one partition knows of its idempotent and transactional producers (Kafka's `ProducerStateManager`).

Per producer id: the epoch, the last five batches, the open transaction's first offset and the epoch of the last
coordinator that wrote a marker. From these follow the duplicates that are answered instead of appended, the batches
that are refused, and the first unstable offset, which bounds the last stable offset.

An append has two phases: `check` raises or returns a plan and changes nothing; `apply` carries the plan out once the
batch has its offset. Followers and recovery `replay` what a leader has already checked. A partition without such
producers needs no manager at all: callers make one at the first batch with a producer id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.errors import InvalidTransactionStateError
from ottla.storage.state.producer_entry import (
    NONE,
    BatchMetadata,
    ProducerEntry,
    check_coordinator_epoch,
    check_marker_epoch,
    check_producer_epoch,
    check_sequence,
)
from ottla.storage.state.producer_verification import VerificationGuard, Verifications

if TYPE_CHECKING:
    from ottla.kproto.records import BatchHeader, EndTxnMarker

__all__ = [
    "AppendPlan",
    "BatchMetadata",
    "CompletedTransaction",
    "DuplicateBatch",
    "FrozenProducers",
    "ProducerEntry",
    "ProducerStateManager",
    "VerificationGuard",
]


class CompletedTransaction(NamedTuple):
    """A transaction with data in this partition that a marker has ended.

    `last_offset` is the marker's. `last_stable_offset` is where the next undecided transaction begins, or the end of
    the log: an aborted transaction is kept with it in the aborted-transaction index.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int


class DuplicateBatch(NamedTuple):
    """The batch is in the log already; the producer is answered with where it lies."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class AppendPlan(NamedTuple):
    """What `check` allowed; `apply` it when the batch has its offset, or drop it and nothing has changed."""

    header: BatchHeader
    marker: EndTxnMarker | None


class FrozenProducers(NamedTuple):
    """A manager's state at one moment, which stays as it is while the manager goes on."""

    end_offset: int
    producers: list[ProducerEntry]
    undecided: dict[int, int]
    """First offset -> marker offset of the transactions whose end awaits the high watermark."""


class ProducerStateManager:
    """All producers of one partition. Synchronous; offsets must be applied and replayed in ascending order."""

    __slots__ = (
        "_freezes",
        "_ongoing",
        "_producers",
        "_undecided",
        "_verifications",
        "end_offset",
        "first_unstable_offset",
    )

    def __init__(self) -> None:
        self.end_offset = 0
        """The offset up to which batches have been applied or replayed (Kafka's map end offset)."""
        self.first_unstable_offset: int | None = None
        """The first offset of a transaction that is open, or ended by a marker not yet below the high watermark."""
        self._producers: dict[int, ProducerEntry] = {}
        # First offset -> producer id of the open transactions; batches come in offset order, so the first is least.
        self._ongoing: dict[int, int] = {}
        # First offset -> marker offset of transactions whose end is not yet below the high watermark.
        self._undecided: dict[int, int] = {}
        self._verifications = Verifications()
        self._freezes = 0

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The entry of a producer id, None if the partition knows nothing of it."""
        return self._producers.get(producer_id)

    def active_producers(self) -> Iterator[ProducerEntry]:
        """Every known producer, for DescribeProducers. The entries are live: read, do not keep."""
        return iter(self._producers.values())

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer epoch has a transaction open in this partition."""
        entry = self._producers.get(producer_id)
        return entry is not None and entry.in_transaction and entry.producer_epoch == producer_epoch

    # The leader's append.

    def check(
        self,
        header: BatchHeader,
        marker: EndTxnMarker | None = None,
        *,
        from_client: bool = True,
        transaction_version: int = 0,
        require_verification: bool = False,
        guard: VerificationGuard | None = None,
    ) -> AppendPlan | DuplicateBatch:
        """Decide on a batch with a producer id before it is appended; nothing changes.

        `marker` is given for control batches, with the transaction version of the request that wrote it. Batches of
        coordinators (`from_client=False`) carry no sequences and only their epoch is checked. One batch of a producer
        is decided at a time, as a produce request holds one batch a partition.

        Raises InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTransactionStateError or
        TransactionCoordinatorFencedError. As in Kafka 4, a producer of which nothing is known may begin with any
        sequence: its state may have expired (except under transactions v2, where it must be 0).
        """
        entry = self._producers.get(header.producer_id)
        if marker is not None:
            check_marker_epoch(entry, header, transaction_version)
            check_coordinator_epoch(entry, header, marker)
            return AppendPlan(header, marker)
        if from_client and entry is not None:
            duplicate = entry.find_duplicate(header)
            if duplicate is not None:
                return DuplicateBatch(duplicate.base_offset, duplicate.last_offset, duplicate.timestamp_ms)
        check_producer_epoch(entry, header)
        if require_verification and header.is_transactional:
            self._check_verified(header, guard)
        if from_client:
            # Whatever its epoch, and also for a batch outside of transactions, which needs none.
            out = self._verifications.get(header.producer_id)
            lowest = None if out is None else out.lowest_sequence
            check_sequence(entry, header, lowest, is_v2=out is not None and out.supports_epoch_bump)
        if entry is not None and entry.in_transaction and not header.is_transactional:
            raise InvalidTransactionStateError(
                f"producer {header.producer_id} has a transaction open and sent a batch outside of it"
            )
        return AppendPlan(header, None)

    def apply(self, plan: AppendPlan, base_offset: int, timestamp_ms: int | None = None) -> CompletedTransaction | None:
        """Carry a plan out: the batch begins at `base_offset`; returns the transaction that its marker has ended.

        `timestamp_ms` replaces the batch's own maximum timestamp where the topic stamps records itself.
        """
        header = plan.header
        timestamp_ms = header.max_timestamp_ms if timestamp_ms is None else timestamp_ms
        return self._update(header, plan.marker, base_offset, timestamp_ms)

    # A follower's append, and recovery.

    def replay(self, header: BatchHeader, marker: EndTxnMarker | None = None) -> CompletedTransaction | None:
        """Take over a batch that a leader has accepted; any batch will do, those without a producer id as well.

        A control batch whose marker compaction has removed is given with `marker=None` and changes nothing.
        """
        if header.producer_id < 0 or (header.is_control and marker is None):
            self.end_offset = max(self.end_offset, header.next_offset)
            return None
        return self._update(header, marker, header.base_offset, header.max_timestamp_ms)

    def _update(
        self, header: BatchHeader, marker: EndTxnMarker | None, base_offset: int, timestamp_ms: int
    ) -> CompletedTransaction | None:
        last_offset = base_offset + header.last_offset_delta
        entry = self._to_change(header.producer_id)
        if header.is_transactional:
            self._verifications.end(header.producer_id)
        self.end_offset = last_offset + 1
        if marker is not None:
            return self._end_transaction(entry, header, marker, last_offset, timestamp_ms)
        entry.add_batch(
            header.producer_epoch,
            BatchMetadata(header.last_sequence, last_offset, header.last_offset_delta, timestamp_ms),
        )
        # Compaction empties batches of ended transactions only: an empty one opens none.
        if header.is_transactional and not entry.in_transaction and header.record_count > 0:
            entry.begin_transaction(base_offset)
            self._ongoing[base_offset] = header.producer_id
            self._find_first_unstable()
        return None

    def _to_change(self, producer_id: int) -> ProducerEntry:
        """The producer's entry, which nobody else has."""
        entry = self._producers.get(producer_id)
        if entry is not None and entry.frozen == self._freezes:
            return entry
        if entry is None:
            entry = ProducerEntry(producer_id, frozen=self._freezes)
        else:
            entry = entry.copy(self._freezes)
        self._producers[producer_id] = entry
        return entry

    def _end_transaction(
        self, entry: ProducerEntry, header: BatchHeader, marker: EndTxnMarker, offset: int, timestamp_ms: int
    ) -> CompletedTransaction | None:
        first_offset = entry.end_transaction(header.producer_epoch, marker.coordinator_epoch, timestamp_ms)
        if first_offset < 0:
            return None
        del self._ongoing[first_offset]
        self._undecided[first_offset] = offset
        self._find_first_unstable()
        return CompletedTransaction(
            header.producer_id, first_offset, offset, not marker.is_commit, next(iter(self._ongoing), offset + 1)
        )

    # Visibility.

    def advance_high_watermark(self, offset: int) -> bool:
        """Let transactions whose marker lies below the high watermark be stable; True if the bound moved."""
        if not self._undecided:
            return False
        decided = [first for first, marker_offset in self._undecided.items() if marker_offset < offset]
        for first_offset in decided:
            del self._undecided[first_offset]
        before = self.first_unstable_offset
        self._find_first_unstable()
        return self.first_unstable_offset != before

    def advance_log_start_offset(self, offset: int) -> bool:
        """Forget ended transactions that the log no longer holds; producers stay known. True if the bound moved."""
        self.end_offset = max(self.end_offset, offset)
        return self.advance_high_watermark(offset)

    def _find_first_unstable(self) -> None:
        ongoing = next(iter(self._ongoing), None)
        undecided = min(self._undecided, default=None)
        if ongoing is None or undecided is None:
            self.first_unstable_offset = undecided if ongoing is None else ongoing
        else:
            self.first_unstable_offset = min(ongoing, undecided)

    # Verification of transactional writes (KIP-890).

    def is_fenced(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a later epoch of the producer is known here."""
        entry = self._producers.get(producer_id)
        return entry is not None and producer_epoch < entry.producer_epoch

    def needs_verification(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the coordinator is to be asked about a transactional batch: not where this epoch's transaction is
        open, nor for a fenced producer, whose batch leaves no trace.
        """
        is_open = self.has_ongoing_transaction(producer_id, producer_epoch)
        return not is_open and not self.is_fenced(producer_id, producer_epoch)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Ask for the token with which a transaction's first batch may be appended once the coordinator agrees.

        None: no verification is needed. The token dies with the first transactional batch or marker of the producer,
        so that an answer that comes late opens nothing.
        """
        if not self.needs_verification(producer_id, producer_epoch):
            return None
        return self._verifications.begin(
            producer_id, producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    def admits(self, producer_id: int, producer_epoch: int, guard: VerificationGuard | None) -> bool:
        """Whether a transactional batch may be appended: the transaction is open, or the token lives."""
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return True
        return guard is not None and self._verifications.get(producer_id) is guard

    def _check_verified(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        if not self.admits(header.producer_id, header.producer_epoch, guard):
            raise InvalidTransactionStateError(
                f"producer {header.producer_id} sent a batch that is not part of an ongoing transaction"
            )

    # Expiry, truncation, snapshots.

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers outside a transaction that wrote nothing for so long; returns how many."""
        expired = [
            producer_id
            for producer_id, entry in self._producers.items()
            if not entry.in_transaction and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        self._verifications.expire(now_ms, expiration_ms)
        return len(expired)

    def knows_until(self, offset: int) -> bool:
        """Whether what producers had done when the log ended at `offset` can be told from what is known now.

        What markers did is not undone, nor is a producer known whose last five batches lie beyond: then the caller must
        `replay` the batches that are left. Elsewhere that would be wrong: compaction may have taken them away.
        """
        return all(
            entry.coordinator_epoch == NONE
            and not entry.in_transaction
            and entry.batches
            and entry.batches[0].last_offset < offset
            for entry in self._producers.values()
        )

    def truncate_from_end(self, offset: int) -> None:
        """The log now ends at `offset`, and `knows_until` was true: forget the batches from there on."""
        assert self.knows_until(offset)
        for producer_id in self._producers:
            self._to_change(producer_id).forget_from(offset)
        self._verifications.clear()
        self.end_offset = min(self.end_offset, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything."""
        self._producers.clear()
        self._ongoing.clear()
        self._undecided.clear()
        self._verifications.clear()
        self.first_unstable_offset = None
        self.end_offset = offset

    def freeze(self) -> FrozenProducers:
        """The current state, for a snapshot. It is quick: later changes copy the entries that they change."""
        self._freezes += 1
        return FrozenProducers(self.end_offset, list(self._producers.values()), dict(self._undecided))

    def restore(
        self, end_offset: int, producers: Iterable[ProducerEntry], undecided: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Replace everything by what a snapshot held (`ottla.storage.state.producer_snapshot`)."""
        self.truncate_fully_and_start_at(end_offset)
        self._producers = {entry.producer_id: entry for entry in producers}
        self._ongoing = dict(
            sorted(
                (entry.transaction_first_offset, entry.producer_id)
                for entry in self._producers.values()
                if entry.in_transaction
            )
        )
        self._undecided = dict(undecided)
        self._find_first_unstable()
