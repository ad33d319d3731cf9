"""What is known about one log: offsets, epochs, producers, aborted transactions; and everything that may happen to it.

Each change of a log calls one of the methods here, which keeps everything consistent. None of them waits, so no other
task sees a half-done change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto.records import BatchHeader, EndTxnMarker, parse_end_txn_marker
from ottla.storage.errors import CorruptLogError
from ottla.storage.format.checkpoint import PartitionState
from ottla.storage.state.aborted_transactions import AbortedTransactions
from ottla.storage.state.leader_epochs import LeaderEpochs
from ottla.storage.state.producer_snapshot import read_snapshot
from ottla.storage.state.producer_state import (
    AppendPlan,
    CompletedTransaction,
    FrozenProducers,
    ProducerStateManager,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.storage.state.aborted_transactions import AbortedTransaction

__all__ = ["LogState", "ProducerHistory", "marker_of"]


class ProducerHistory:
    """What the batches of a log say about their producers; each is None as long as there is nothing to say."""

    __slots__ = ("aborted", "producers")

    def __init__(self) -> None:
        self.producers: ProducerStateManager | None = None
        self.aborted: AbortedTransactions | None = None

    def replay(self, view: memoryview, header: BatchHeader) -> None:
        """Take over what a batch that is already in the log says about its producer (followers, recovery)."""
        if header.producer_id < 0:
            return
        if self.producers is None:
            self.producers = ProducerStateManager()
        self._note(self.producers.replay(header, marker_of(view, header)))

    def _note(self, completed: CompletedTransaction | None) -> None:
        if completed is None or not completed.is_aborted:
            return
        if self.aborted is None:
            self.aborted = AbortedTransactions()
        self.aborted.append(
            completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
        )


class LogState(ProducerHistory):
    """The state of one log. Others read its fields; only its methods change them.

    [`log_start_offset`, `log_end_offset`) is what is there; below `flushed_end_offset` it is written (and synced where
    the flush settings ask) and may be acknowledged and read. `high_watermark` is the server's: it begins at the
    recovered end, and the server sets it with `set_high_watermark` and moves it with `advance_high_watermark`.
    `first_dirty_offset` is where the next compaction begins; `size_bytes` what the log takes in the files, what is not
    written yet (`unwritten_bytes`) included. `lineage` rises whenever records are removed from the end, so earlier
    readers know that they may have read what is not there any more; `cleanings` with each compaction.
    """

    __slots__ = (
        "cleanings",
        "epochs",
        "first_dirty_offset",
        "flushed_end_offset",
        "high_watermark",
        "lineage",
        "log_end_offset",
        "log_start_offset",
        "size_bytes",
        "unwritten_bytes",
    )

    def __init__(self) -> None:
        super().__init__()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_end_offset = 0
        self.high_watermark = 0
        self.first_dirty_offset = 0
        self.size_bytes = 0
        self.unwritten_bytes = 0
        self.lineage = 0
        self.cleanings = 0
        self.epochs = LeaderEpochs()

    # It grows.

    def grown(self, base_offset: int, last_offset: int, leader_epoch: int, size_bytes: int) -> None:
        """A batch was appended."""
        if leader_epoch >= 0:
            self.epochs.assign(leader_epoch, base_offset)
        self.log_end_offset = last_offset + 1
        self.size_bytes += size_bytes
        self.unwritten_bytes += size_bytes

    def flushed_to(self, offset: int, size_bytes: int) -> None:
        """Everything below an offset is written, this many bytes more: readers may see it."""
        self.flushed_end_offset = offset
        self.unwritten_bytes -= size_bytes
        assert self.unwritten_bytes >= 0

    def track_producers(self) -> ProducerStateManager:
        """What is known about its producers; created on first use."""
        if self.producers is None:
            self.producers = ProducerStateManager()
            self.producers.truncate_fully_and_start_at(self.log_end_offset)
        return self.producers

    def apply_plan(self, plan: AppendPlan, base_offset: int, timestamp_ms: int | None) -> None:
        """A batch of a producer has its offset: carry out what `ProducerStateManager.check` allowed."""
        self._note(self.track_producers().apply(plan, base_offset, timestamp_ms))

    def adopt_producers(self, history: ProducerHistory) -> None:
        """What the batches say replaces what was known about the producers."""
        self.producers, self.aborted = history.producers, history.aborted
        self.set_high_watermark(self.high_watermark)

    # Visibility.

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed consumer may see: never beyond the high watermark."""
        if self.producers is None or self.producers.first_unstable_offset is None:
            return self.high_watermark
        return min(self.high_watermark, max(self.producers.first_unstable_offset, self.log_start_offset))

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward (never back, never beyond the log end); True if it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.set_high_watermark(offset)
        return True

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, even backwards: for a change of role."""
        self.high_watermark = offset
        if self.producers is not None:
            self.producers.advance_high_watermark(offset)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 for none."""
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch not above this one, its end offset); (-1, -1) when unknown (KIP-101, KIP-279)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # It shrinks.

    def start_moved(self, offset: int) -> None:
        """What is below an offset is gone: it is the new log start offset."""
        self.log_start_offset = offset
        self.log_end_offset = max(self.log_end_offset, offset)
        self.epochs.truncate_from_start(offset)
        if self.producers is not None:
            self.producers.advance_log_start_offset(offset)
        if self.aborted is not None:
            self.aborted = self.aborted.truncated_from_start(offset)

    def truncated(self, offset: int) -> None:
        """What is at and after an offset is gone; all that was appended must be written before.

        For producers `truncate_producers` or `adopt_producers` must follow at once.
        """
        assert not self.unwritten_bytes
        self.lineage += 1
        self.log_end_offset = min(self.log_end_offset, offset)
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self.epochs.truncate_from_end(offset)
        if self.aborted is not None:
            self.aborted = self.aborted.truncated_from_end(offset)

    def knows_producers_until(self, offset: int) -> bool:
        """Whether `truncate_producers` can be told to go back there; else that must be read from the batches."""
        return self.producers is None or self.producers.knows_until(offset)

    def truncate_producers(self, offset: int) -> None:
        """Forget what producers did at and beyond an offset."""
        if self.producers is not None:
            self.producers.truncate_from_end(offset)

    def emptied(self, offset: int) -> None:
        """Everything is gone; the log continues at an offset. Everything that was appended must have been written
        before.
        """
        assert not self.unwritten_bytes
        self.lineage += 1
        self.log_start_offset = self.log_end_offset = self.flushed_end_offset = self.high_watermark = offset
        self.first_dirty_offset = offset
        self.size_bytes = 0
        self.epochs.clear()
        self.producers = None
        self.aborted = None

    def cleaned(self, end_offset: int, first_dirty_offset: int, aborted: Iterable[AbortedTransaction]) -> None:
        """Compaction has cleaned up to an offset: of the transactions that were aborted before it, these are left.

        Records that were read before are not of the same age as the index is now: `cleanings` tells.
        """
        self.first_dirty_offset = first_dirty_offset
        self.cleanings += 1
        if self.aborted is not None:
            self.aborted = self.aborted.replaced_before(end_offset, aborted)

    def resized(self, written_bytes: int) -> None:
        """The log's size in the files was counted again."""
        self.size_bytes = written_bytes + self.unwritten_bytes

    # Checkpoints and recovery.

    def state(self, as_of_sequence: int) -> tuple[PartitionState, FrozenProducers | None]:
        """What is known, as of a block, except producers; nothing may have been appended to a later one yet."""
        state = PartitionState(
            as_of_sequence,
            self.log_start_offset,
            self.log_end_offset,
            self.first_dirty_offset,
            self.size_bytes,
            self.epochs.to_bytes() if len(self.epochs) else b"",
            self.aborted.to_bytes() if self.aborted is not None else b"",
            b"",
        )
        return state, None if self.producers is None else self.producers.freeze()

    def load_state(self, content: bytes) -> bool:
        """Restore a packed `state`; False if what it says about producers is damaged and must be read again."""
        state = PartitionState.parse(content)
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = self.flushed_end_offset = self.high_watermark = state.log_end_offset
        self.first_dirty_offset = state.first_dirty_offset
        self.size_bytes = state.size_bytes
        if state.epochs:
            self.epochs = LeaderEpochs.from_bytes(state.epochs)
        try:
            if state.aborted:
                self.aborted = AbortedTransactions.from_bytes(state.aborted)
            if state.producers:
                self.producers = read_snapshot(state.producers)
        except CorruptLogError:
            self.aborted, self.producers = None, None
            return False
        return True

    def recovered(self, header: BatchHeader) -> None:
        """A batch was found after the recovery point."""
        if header.leader_epoch >= 0:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        self.log_end_offset = self.flushed_end_offset = self.high_watermark = header.next_offset
        self.size_bytes += header.size_bytes

    def lost_until(self, offset: int, leader_epoch: int) -> None:
        """What came after the recovery point is lost up to an offset, where the log continues."""
        if leader_epoch >= 0:
            self.epochs.assign(leader_epoch, self.log_end_offset)
        self.log_end_offset = self.flushed_end_offset = self.high_watermark = offset

    def end_found(self, offset: int) -> None:
        """The files end at an offset, whatever a checkpoint has said."""
        self.log_end_offset = offset
        self.truncated(offset)
        self.flushed_end_offset = self.high_watermark = offset


def marker_of(records: memoryview, header: BatchHeader) -> EndTxnMarker | None:
    """The marker of a control batch; None for data, and for a control batch whose marker compaction has removed."""
    return parse_end_txn_marker(records, 0, header) if header.is_control else None
