"""What callers of a log pass in and get back."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.kproto.records import BatchHeader
    from ottla.storage.config import LogConfig

__all__ = ["AppendInfo", "AppendOrigin", "CheckedBatch"]


class AppendOrigin(Enum):
    """Who is appending; a client's batches are checked most strictly (Kafka's `AppendOrigin`)."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class CheckedBatch(NamedTuple):
    """A batch that `PartitionLog.check_ahead` has found to be valid under these settings.

    `changed`, unless it is None, replaces what was offered: the batch in the topic's own codec, or without some of its
    records.
    """

    header: BatchHeader
    changed: memoryview | None
    config: LogConfig

    @property
    def is_partial(self) -> bool:
        """Whether records were taken out of it: it keeps its offsets, as after compaction. A producer may not send
        such a batch, so it is appended as it was checked or not at all."""
        return self.header.record_count <= self.header.last_offset_delta


class AppendInfo(NamedTuple):
    """What an append did. `log_append_time_ms` is -1 unless the topic stamps records itself; of a duplicate it is the
    largest timestamp of the batch that is there, as in Kafka.

    A duplicate (an idempotent producer's retry of a batch that is already there) names the offsets of the
    first time; it must be acknowledged only when `flushed_end_offset` is beyond `last_offset`, like any other.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
