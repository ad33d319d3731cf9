"""One partition's view of its store: offsets, epochs, producers, visibility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.storage.config import LogConfig

if TYPE_CHECKING:
    from ottla.storage.iobuf import Fragment
    from ottla.storage.reader import ReadPlan

__all__ = ["AppendInfo", "AppendOrigin", "PartitionLog", "TimestampOffset"]


class AppendOrigin(Enum):
    """Who appends; a client's batches are checked most strictly (Kafka's `AppendOrigin`)."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


@dataclass(slots=True, frozen=True)
class AppendInfo:
    """What an append did. `log_append_time_ms` is -1 unless the topic stamps records itself.

    A duplicate (an idempotent producer's retry of a batch that is already there) names the offsets of the
    first time; it must be acknowledged only when `flushed_end_offset` is beyond `last_offset`, like any other.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


@dataclass(slots=True, frozen=True)
class TimestampOffset:
    """A record found by timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class PartitionLog:
    """The log of one partition."""

    topic_id: UUID
    topic: str
    partition: int
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    flushed_end_offset: int
    high_watermark: int

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed consumer may see: never beyond the high watermark."""

    @property
    def has_room(self) -> bool:
        """False while both memstores of the store are full."""

    async def wait_for_room(self) -> None:
        """Wait until the store takes appends; raises StoreOfflineError if it never will."""

    def append_as_leader(
        self,
        records: memoryview,
        fragment: Fragment | None,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        now_ms: int,
    ) -> AppendInfo:
        """Validate, assign offsets, patch them in place and hand the views to the active memstore."""

    def append_as_follower(self, records: memoryview, fragment: Fragment | None, *, now_ms: int) -> AppendInfo:
        """Append batches as the leader numbered them; they must continue at `log_end_offset`."""

    def plan_read(self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool) -> ReadPlan:
        """Plan a read of [offset, end_offset); raises OffsetOutOfRangeError outside [log start, log end]."""

    def aborted_transactions(self, offset: int, end_offset: int) -> Sequence[object]:
        """The aborted transactions which overlap [offset, end_offset): (producer_id, first_offset)."""

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward (never back); True if it, or the last stable offset, moved."""

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The earliest record below flushed end whose timestamp is at least this; None when there is none."""

    async def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (ListOffsets' MAX_TIMESTAMP); None for an empty log."""

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 for none."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch ≤ the given one, its end offset), (-1, -1) when unknown (KIP-101/279)."""

    async def truncate_to(self, offset: int) -> None:
        """Drop everything at and beyond offset; returns when that is written."""

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and start anew at offset (a follower below its leader's log start)."""

    async def advance_log_start_offset(self, offset: int) -> None:
        """Make everything below offset unreadable (DeleteRecords, retention); returns when that is written."""

    def active_producers(self) -> Sequence[object]:
        """The producers that DescribeProducers names."""

    def set_config(self, config: LogConfig) -> None:
        """Take a topic's changed settings."""

    async def flush(self) -> None:
        """Write and sync everything appended up to now."""

    @property
    def size_bytes(self) -> int:
        """The bytes of live batches (DescribeLogDirs)."""
