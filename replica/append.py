"""Appending through the replica manager: what is asked, what is answered, and the delayed operation between them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.replica.errors import (
    InternalTopicError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from ottla.replica.partition import ACKS_ALL, Partition, Role
from ottla.runtime.errors import kept
from ottla.storage.errors import CorruptBatchError, DiskFullError, RecordTooLargeError, StoreOfflineError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from ottla.storage.log.append_types import CheckedBatch
    from ottla.storage.log.partition_log import AppendInfo
    from ottla.storage.memory.iobuf import Fragment
    from ottla.storage.state.producer_state import VerificationGuard


# A member of an enumeration costs as much to look up as a call, and this one is asked for with every append.
_LEADER: Final = Role.LEADER

# Refusals that say nothing of the log (Kafka's `ReplicaManager.appendToLocalLog`).
_WITHOUT_LOG_START: Final = (
    UnknownTopicOrPartitionError,
    NotLeaderError,
    InternalTopicError,
    StoreOfflineError,
    DiskFullError,
    RecordTooLargeError,
    CorruptBatchError,
)


class TopicIdPartition(NamedTuple):
    """Names a partition: topics by id, so that a topic that was created again is another one."""

    topic_id: UUID
    partition: int


class Records(NamedTuple):
    """One partition's batches to append, and the memory that they lie in.

    The view is writable: offsets and epoch are patched into it. The store retains the fragment for as long as it needs
    the bytes; None means that nobody reuses them. `guard` is what `PartitionLog.begin_verification` gave for a
    transaction's first batch, `checked` what `PartitionLog.check_ahead` found, if it was called before.
    """

    view: memoryview
    fragment: Fragment | None = None
    guard: VerificationGuard | None = None
    checked: CheckedBatch | None = None


class AppendResult:
    """One partition's answer: `error`, or the offsets of what was appended.

    `log_append_time_ms` is -1 unless the topic stamps records itself.
    """

    __slots__ = ("base_offset", "error", "last_offset", "log_append_time_ms", "log_start_offset", "partition", "term")

    def __init__(
        self,
        error: Exception | None = None,
        partition: Partition | None = None,
        base_offset: int = -1,
        last_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.error = error
        #: For the operation: where the records are, and the term in which they were appended.
        self.partition = partition
        self.term = -1 if partition is None else partition.term
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset

    def __repr__(self) -> str:
        return f"<AppendResult {self.error!r}>" if self.error else f"<AppendResult at {self.base_offset}>"

    @property
    def is_written(self) -> bool:
        """Whether the leader has written what was appended."""
        assert self.partition is not None
        return self.partition.log.flushed_end_offset > self.last_offset

    def fail(self, error: Exception) -> None:
        """Turn into the answer to an error."""
        self.error = error
        self.base_offset = self.last_offset = self.log_append_time_ms = self.log_start_offset = -1


class AppendOperation:
    """The delayed append: complete when each of its partitions has what `required_acks` asks for, or an error.

    acks=1 asks that the leader has flushed the records, acks=all that they lie below the high watermark. Both are
    refused at once when this node stops leading, even for a moment, since what it appended may be gone then; and when
    it stops, where other replicas do not have the records, since they will not get them from here any more.

    The deadline is for the other replicas. The leader's own write has no time limit, as in Kafka, whose request handler
    makes that write before the time begins to count.
    """

    __slots__ = ("_deadline", "_pending", "_required_acks", "_timeout_ms", "_waits_for_room", "results")

    def __init__(self, required_acks: int, timeout_ms: int, *, waits_for_room: bool = False) -> None:
        """On a full disk it fails, unless it `waits_for_room`."""
        self._waits_for_room = waits_for_room
        self._timeout_ms = timeout_ms
        self._deadline: float | None = None
        self._required_acks = required_acks
        self._pending: list[AppendResult] = []
        #: In the order of what was asked.
        self.results: list[AppendResult] = []

    @property
    def is_pending(self) -> bool:
        return bool(self._pending)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to wait for now."""
        return not self._pending or self.try_complete() is not None

    @property
    def keys(self) -> Iterable[Partition]:
        """What may complete it."""
        return [pending.partition for pending in self._pending if pending.partition is not None]

    def appended(self, partition: Partition, info: AppendInfo) -> None:
        """The log took a partition's records; from now on they are waited for."""
        log_start = info.log_start_offset if partition.remote is None else partition.log_start_offset
        result = AppendResult(None, partition, info.base_offset, info.last_offset, info.log_append_time_ms, log_start)
        self.results.append(result)
        if self._required_acks:
            self._pending.append(result)

    def refused(self, error: Exception, partition: Partition | None) -> None:
        """A partition's records were not appended."""
        result = AppendResult(kept(error))
        if partition is not None and not isinstance(error, _WITHOUT_LOG_START):
            result.log_start_offset = partition.log_start_offset
        self.results.append(result)

    @property
    def deadline(self) -> float:
        """When its time is over, by the event loop's clock in seconds. It begins to count when this is first asked:
        most are complete before.
        """
        if self._deadline is None:
            self._deadline = trio.current_time() + self._timeout_ms / 1000
        return self._deadline

    @property
    def left_ms(self) -> float:
        """For how long from now on other replicas are waited for; without end where none are."""
        if self._required_acks != ACKS_ALL:
            return math.inf
        return (self.deadline - trio.current_time()) * 1000

    def may_expire(self) -> bool:
        """Whether the leader has written what it appended."""
        return all(result.is_written for result in self._pending)

    def try_complete(self) -> bool | None:
        """True when nothing is left to wait for."""
        left = []
        for result in self._pending:
            if not self._settle(result):
                left.append(result)
        self._pending = left
        return None if left else True

    def expire(self, *, shutting_down: bool) -> None:
        """The deadline has come: whatever is still pending is answered with that. Its records stay in the log."""
        for result in self._pending:
            assert result.partition is not None
            if shutting_down:
                result.fail(_unacknowledged(result.partition, result))
            else:
                name, end_offset = f"{result.partition.topic}-{result.partition.index}", result.last_offset + 1
                result.fail(RequestTimedOutError(f"offset {end_offset} of {name} was not acknowledged in time"))
        self._pending = []

    def _settle(self, result: AppendResult) -> bool:
        """Whether one partition's answer is final now."""
        partition = result.partition
        assert partition is not None
        if partition.term != result.term or partition.role is not _LEADER:
            result.fail(_lost_leadership(partition))
            return True
        log = partition.log
        if log.flushed_end_offset <= result.last_offset:  # not `is_written`: a call less for every produce
            if log.is_stalled and (partition.is_leaving or not self._waits_for_room):
                result.fail(DiskFullError(f"the disk of {partition.topic}-{partition.index} is full"))
                return True
            return False
        if self._required_acks != ACKS_ALL:
            return True
        if partition.log.high_watermark <= result.last_offset:
            if partition.is_leaving:
                result.fail(_unacknowledged(partition, result))
            return partition.is_leaving
        if partition.is_under_min_isr:
            name = f"{partition.topic}-{partition.index}"
            result.fail(NotEnoughReplicasAfterAppendError(f"{name} has too few replicas in sync"))
        return True


def _unacknowledged(partition: Partition, result: AppendResult) -> Exception:
    name = f"{partition.topic}-{partition.index}"
    return NotLeaderError(f"{name} stopped before offset {result.last_offset + 1} was acknowledged")


def _lost_leadership(partition: Partition) -> Exception:
    error = partition.leadership_error()
    if error is None:
        # It leads again, in a later term.
        name = f"{partition.topic}-{partition.index}"
        return NotLeaderError(f"the leader of {name} changed before the records were acknowledged")
    return error
