"""The share partitions of one partition of `__share_group_state`: what the log says, held in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.coordinator.share import records
from ottla.coordinator.share.state import (
    NO_EPOCH,
    SharePartitionKey,
    ShareState,
    combine,
)

if TYPE_CHECKING:
    from ottla.coordinator.partition import Write
    from ottla.coordinator.replay import CoordinatorRecord, Producer
    from ottla.kproto.internal_records.share_state import ShareUpdateValue
    from ottla.kproto.records import EndTxnMarker


class ShareEntry:
    """One share partition as its committed records describe it, and what has been promised about it since.

    `state_epoch` and `leader_epoch` run ahead of the log: from the moment a later writer is let in, an earlier one is
    refused, so that none of its writes can come after what the later one is told. `beginning` is the last beginning,
    with its state epoch, `deletion` the partition's removal; one that could not be stored changes nothing.
    """

    __slots__ = (
        "beginning",
        "created_ms",
        "deletion",
        "is_snapshotting",
        "leader_epoch",
        "snapshot_epoch",
        "snapshot_offset",
        "state",
        "updates",
    )

    def __init__(self, state: ShareState, snapshot_epoch: int, snapshot_offset: int, created_ms: int) -> None:
        self.state = state
        self.snapshot_epoch = snapshot_epoch
        self.snapshot_offset = snapshot_offset
        self.created_ms = created_ms
        self.updates = 0
        self.leader_epoch = state.leader_epoch
        self.beginning: tuple[Write, int] | None = None
        self.deletion: Write | None = None
        self.is_snapshotting = False

    def begin_anew(self, write: Write, state_epoch: int) -> None:
        """It begins in a new epoch, whose record is on its way."""
        self.beginning = (write, state_epoch)

    def admit_leader(self, leader_epoch: int) -> None:
        """A leader of this epoch reads the state: an earlier one may not write any more."""
        self.leader_epoch = max(self.leader_epoch, leader_epoch)

    def end(self, write: Write) -> Write:
        """Its removal is on its way."""
        self.deletion = write
        return write

    def begin_snapshot(self) -> bool:
        """Whether the caller is to write a snapshot: nobody does so already."""
        was_snapshotting, self.is_snapshotting = self.is_snapshotting, True
        return not was_snapshotting

    def end_snapshot(self) -> None:
        """A snapshot was written, or was refused."""
        self.is_snapshotting = False

    @property
    def state_epoch(self) -> int:
        """The epoch in which leaders may write, from the moment when its beginning was let in."""
        if self.beginning is None or self.beginning[0].error is not None:
            return self.state.state_epoch
        return max(self.state.state_epoch, self.beginning[1])

    @property
    def is_ending(self) -> bool:
        """Whether its removal is on its way."""
        return self.deletion is not None and self.deletion.error is None

    def take_snapshot(self, state: ShareState, snapshot_epoch: int, offset: int) -> None:
        """A later snapshot was committed."""
        if NO_EPOCH != state.state_epoch < self.state.state_epoch:
            # It was on its way when the share partition was begun anew, and says nothing newer: a former coordinator of
            # the group asked for it. Leaders would be told of an epoch in which they may not write.
            return
        self.state = state
        self.snapshot_epoch = snapshot_epoch
        self.snapshot_offset = offset
        self.updates = 0

    def take_update(self, value: ShareUpdateValue) -> None:
        """A change was committed."""
        state = self.state
        # A change that was stored late brings nothing newer: the start never goes back, except when the partition is
        # initialized again. A writer that moves it without a count (WriteShareGroupState 0) makes the count unknown;
        # one that names no start, where there is one, says nothing of the count, as in Kafka.
        start_offset = max(state.start_offset, value.start_offset)
        leader_epoch = max(state.leader_epoch, value.leader_epoch)
        if value.start_offset == state.start_offset:
            # Behind one start, what is complete only grows.
            count = max(value.delivery_complete_count, state.delivery_complete_count)
        else:
            is_late = value.start_offset < state.start_offset
            count = state.delivery_complete_count if is_late else value.delivery_complete_count
        self.state = ShareState(
            state.state_epoch,
            leader_epoch,
            start_offset,
            count,
            combine(state.batches, records.read_batches(value.state_batches), start_offset),
        )
        self.updates += 1
        self.leader_epoch = max(self.leader_epoch, leader_epoch)


class ShardListener(Protocol):
    """Hears of what becomes of shards."""

    def loaded(self, shard: ShareShard) -> None:
        """The partition has been replayed."""


class ShareShard:
    """Implements the runtime's `Shard`."""

    def __init__(self, partition: int, listener: ShardListener | None = None) -> None:
        self.partition = partition
        self.entries: dict[SharePartitionKey, ShareEntry] = {}
        #: The offset of the last record that was replayed.
        self.last_offset = -1
        self._listener = listener

    def replay(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        self.last_offset = offset
        match records.decode(record):
            case records.SnapshotRecord(key, _, _, None):
                self.entries.pop(key, None)
            case records.SnapshotRecord(key, epoch, created_ms, state) if state is not None:
                entry = self.entries.get(key)
                if entry is None:
                    self.entries[key] = ShareEntry(state, epoch, offset, created_ms)
                else:
                    entry.take_snapshot(state, epoch, offset)
            case records.UpdateRecord(key, _, value) if value is not None:
                entry = self.entries.get(key)
                # An update without a snapshot follows the removal of its share partition.
                if entry is not None:
                    entry.take_update(value)
            case _:
                pass

    def replay_marker(self, marker: EndTxnMarker) -> None:
        pass  # no transaction writes here

    def loaded(self) -> None:
        if self._listener is not None:
            self._listener.loaded(self)

    def unloaded(self) -> None:
        self.entries.clear()
        self.last_offset = -1

    def redundant_end(self) -> int:
        """The offset below which the log holds nothing that a later record does not repeat; 0 once it is unloaded."""
        return min((entry.snapshot_offset for entry in self.entries.values()), default=self.last_offset + 1)
