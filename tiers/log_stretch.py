"""The part of a log that is copied next: from the manifest's end, as far as it is sealed, committed and decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ottla.storage.config import INT64_MAX
from ottla.storage.errors import StorageError
from ottla.storage.reading.locate import wait_for_spans
from ottla.storage.state.leader_epochs import NO_EPOCH
from ottla.tiers.errors import NotContiguousError, StaleUploadError

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.memory.iobuf import IOBuf
    from ottla.storage.state.aborted_transactions import AbortedTransaction
    from ottla.tiers.manifest import Manifest

__all__ = ["UPLOAD_BYTES", "LogStretch", "next_stretch"]

UPLOAD_BYTES: Final = 1_073_741_824
"""How much of a partition goes into one upload at most, unless a single segment has more."""


class Leadership(Protocol):
    """This node's place among the replicas of a partition."""

    def leads_in(self, leader_epoch: int) -> bool:
        """Whether this node leads the partition, in this epoch."""


class LogStretch:
    """A stretch of a partition's log, with what must be known of it; a `CopySource`.

    `require_current` raises StaleUploadError when the log was cut meanwhile, or this node does not lead any more: what
    was read of it is then nobody's.
    """

    def __init__(
        self,
        log: PartitionLog,
        base_offset: int,
        end_offset: int,
        *,
        leader_epoch: int,
        leadership: Leadership,
    ) -> None:
        self._log = log
        self._lineage = log.lineage
        self._leadership = leadership
        self.partition = log.partition
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.leader_epoch = leader_epoch
        is_known = base_offset > log.log_start_offset
        self.previous_epoch = log.epochs.epoch_for_offset(base_offset - 1) if is_known else NO_EPOCH
        self.aborted: Sequence[AbortedTransaction] = (
            () if log.aborted is None else log.aborted.collect(base_offset, end_offset)
        )
        # The log knows its producers as of its end only.
        self.producers = b""

    def __repr__(self) -> str:
        return f"<[{self.base_offset}, {self.end_offset}) of {self._log.topic}-{self.partition}>"

    async def read(self, offset: int) -> tuple[IOBuf, int]:
        """Whole batches from an offset on, and the offset that follows them."""
        self.require_current()
        try:
            return await self._log.read_batches(offset, self.end_offset)
        except StorageError:
            self.require_current()  # deleted, or cut, while it was read
            raise

    def require_current(self) -> None:
        """Raise StaleUploadError unless the log still has the records that it had when the stretch was chosen."""
        log = self._log
        if log.is_closed or log.lineage != self._lineage or log.log_start_offset > self.base_offset:
            raise StaleUploadError(f"{self!r} is not what it was when its upload began")
        if not self._leadership.leads_in(self.leader_epoch):
            raise StaleUploadError(f"this node does not lead {self!r} in epoch {self.leader_epoch} any more")


async def next_stretch(
    log: PartitionLog,
    manifest: Manifest,
    *,
    leader_epoch: int,
    leadership: Leadership,
    max_bytes: int = UPLOAD_BYTES,
    due_until: int = INT64_MAX,
) -> LogStretch | None:
    """The next stretch of a log to copy; None if there is none so far.

    It ends where a segment does: at the last one that is sealed, lies below `due_until` and the last stable offset, and
    together with those before it has at most `max_bytes`. NotContiguousError if the log begins after the manifest ends.
    """
    await wait_for_spans(log)
    base_offset = manifest.end_offset if len(manifest) else max(manifest.end_offset, log.log_start_offset)
    if base_offset < log.log_start_offset:
        raise NotContiguousError(
            f"{log} begins at {log.log_start_offset}, after {base_offset}, where {manifest!r} ends"
        )
    end_offset = base_offset
    size_bytes = 0
    for span in log.places.spans_from(base_offset):
        size_bytes += span.size_bytes
        is_too_much = size_bytes > max_bytes and end_offset > base_offset
        if span.last_offset >= min(log.last_stable_offset, log.flushed_end_offset, due_until) or is_too_much:
            break
        end_offset = span.last_offset + 1
    if end_offset == base_offset:
        return None
    return LogStretch(log, base_offset, end_offset, leader_epoch=leader_epoch, leadership=leadership)
