"""Deleting records through the replica manager (KIP-107): the delayed operation that waits for the replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.replica.errors import (
    DeletionNotAllowedError,
    InternalTopicError,
    MirroredTopicError,
    RequestTimedOutError,
)
from ottla.runtime.errors import kept
from ottla.settings.mirrored import Mirroring
from ottla.storage.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.replica.append import TopicIdPartition
    from ottla.replica.partition import Partition

TO_HIGH_WATERMARK: Final = -1


class DeleteRecordsResult:
    """One partition's answer: `error`, or below which offset no live replica serves anything."""

    __slots__ = ("error", "low_watermark")

    def __init__(self, error: Exception | None = None, *, low_watermark: int = -1) -> None:
        self.error = error
        self.low_watermark = low_watermark


class DeleteRecordsOperation:
    """Complete when every partition's low watermark has reached the offset that was asked for."""

    __slots__ = ("_pending", "results")

    def __init__(self) -> None:
        self._pending: list[tuple[TopicIdPartition, Partition, int]] = []
        self.results: dict[TopicIdPartition, DeleteRecordsResult] = {}

    @property
    def keys(self) -> Iterable[Partition]:
        """What may complete it."""
        return [partition for _, partition, _ in self._pending]

    async def delete(
        self, key: TopicIdPartition, partition: Partition, offset: int, *, internal_topics_allowed: bool = False
    ) -> None:
        """Move this node's log start; raises what the partition's answer has to be otherwise."""
        if partition.is_internal and not internal_topics_allowed:
            raise InternalTopicError(f"records of {partition.topic} cannot be deleted")
        if partition.mirroring is not Mirroring.NO:
            raise MirroredTopicError(f"{partition.topic} is a mirror: what its source deletes is deleted here")
        partition.require_leader()
        log = partition.log
        if not log.config.delete:
            raise DeletionNotAllowedError(f"the cleanup.policy of {partition.topic} does not include delete")
        target = log.high_watermark if offset == TO_HIGH_WATERMARK else offset
        if not 0 <= target <= log.high_watermark:
            raise OffsetOutOfRangeError(target, partition.log_start_offset, log.high_watermark)
        is_stalled = log.is_stalled
        if partition.remote is not None:
            await partition.remote.delete_until(target, log, partition.leader_epoch)
            partition.require_leader()
        elif target > log.log_start_offset:
            await log.advance_log_start_offset(target)
        if offset == TO_HIGH_WATERMARK and is_stalled and log.high_watermark > target:
            # What had waited for room when the disk was full was written first, with the reserve's room. Its producers
            # have been refused, nobody has read it, and it would keep the files that everything else was in.
            partition.require_leader()
            target = log.high_watermark
            if partition.remote is not None:
                await partition.remote.delete_until(target, log, partition.leader_epoch)
            else:
                await log.advance_log_start_offset(target)
        self._pending.append((key, partition, target))

    def refused(self, key: TopicIdPartition, error: Exception) -> None:
        """A partition's records were not deleted."""
        self.results[key] = DeleteRecordsResult(kept(error))

    def try_complete(self) -> bool | None:
        """True when nothing is left to wait for."""
        self._pending = [pending for pending in self._pending if not self._settle(*pending)]
        return None if self._pending else True

    def expire(self) -> None:
        """The deadline has come: whatever is still pending is answered with that."""
        for key, partition, target in self._pending:
            self.results[key] = DeleteRecordsResult(
                RequestTimedOutError(f"not every replica of {partition.topic}-{partition.index} is at {target} yet")
            )
        self._pending = []

    def _settle(self, key: TopicIdPartition, partition: Partition, target: int) -> bool:
        error = partition.leadership_error()
        if error is not None:
            self.results[key] = DeleteRecordsResult(kept(error))
            return True
        low_watermark = partition.low_watermark()
        if low_watermark < target:
            return False
        self.results[key] = DeleteRecordsResult(low_watermark=low_watermark)
        return True
