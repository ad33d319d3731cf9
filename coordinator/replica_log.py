"""Coordinators' logs on the replica manager, through which all their appends and reads go."""

from collections.abc import AsyncGenerator, Iterable
from typing import Final, Protocol
from uuid import UUID

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    LaterEpochError,
    NotCoordinatorError,
    StateTooLargeError,
)
from ottla.kproto.records import RecordError
from ottla.replica.append import AppendOperation, Records, TopicIdPartition
from ottla.replica.errors import NotLeaderError, ReplicaError, UnknownTopicOrPartitionError
from ottla.replica.manager import ReplicaManager
from ottla.runtime.stages import Stages, TurnWait
from ottla.storage.errors import (
    InvalidProducerEpochError,
    LogClosedError,
    RecordTooLargeError,
    StorageError,
    TransactionCoordinatorFencedError,
)
from ottla.storage.log.partition_log import AppendOrigin
from ottla.storage.turn import Turn

ACKS_ALL: Final = -1

# An append is waited for until the log decides: a deadline would leave open whether its records count.
NO_TIMEOUT_MS: Final = 2**31 - 1

DELETE_TIMEOUT_MS: Final = 30_000

# A member of an enumeration costs as much to look up as a call, and this one is asked for with every append.
_COORDINATOR: Final = AppendOrigin.COORDINATOR


class TopicIds(Protocol):
    """The ids that topics have now."""

    def topic_id(self, name: str) -> UUID | None:
        """None if there is no such topic."""


class ReplicaLog:
    """Implements PrunableLog for one internal topic, which may not exist yet."""

    def __init__(self, replica_manager: ReplicaManager, topics: TopicIds, topic: str) -> None:
        self._replica_manager = replica_manager
        self._topics = topics
        self._topic = topic

    @property
    def turn(self) -> Turn:
        return self._replica_manager.turn

    def _key(self, partition: int) -> TopicIdPartition:
        topic_id = self._topics.topic_id(self._topic)
        if topic_id is None:
            raise CoordinatorNotAvailableError("the coordinators' topic does not exist")
        return TopicIdPartition(topic_id, partition)

    def begin_append(self, partition: int, records: bytes) -> Stages[int]:
        """Append one batch; returns its base offset once all in-sync replicas have it."""
        operation = yield from self._replica_manager.begin_append(
            [(self._key(partition), Records(memoryview(bytearray(records))))],
            required_acks=ACKS_ALL,
            timeout_ms=NO_TIMEOUT_MS,
            origin=_COORDINATOR,
        )
        if operation.is_pending:
            yield _Appended(self._replica_manager, operation)
        (result,) = operation.results
        if result.error is not None:
            raise _translated(result.error) from result.error
        return result.base_offset

    async def read(self, partition: int) -> AsyncGenerator[memoryview, None]:
        """Yield the committed batches from the log start on, about a mebibyte at a time.

        Whatever the log holds when the reading begins is waited for until it is committed: it may come from another
        leader, or from an earlier term of this node, and be committed only now.
        """
        try:
            led = self._replica_manager.get_partition(*self._key(partition))
            log = led.log
            offset, end_offset = log.log_start_offset, log.log_end_offset
            while offset < max(end_offset, log.high_watermark):
                if offset >= log.high_watermark:
                    yield memoryview(b"")
                    await self._replica_manager.wait_committed(led, end_offset)
                records, offset = await log.read_batches(offset, log.high_watermark)
                with records:
                    batches = memoryview(records.to_bytes())
                if batches:
                    yield batches
                await trio.lowlevel.checkpoint()
        except (ReplicaError, StorageError, OSError) as error:
            raise _translated(error) from error

    async def confirm(self, partitions: Iterable[int]) -> None:
        """Return when nobody else had led any of the partitions when this was called: at once, unless this node may
        have been replaced.
        """
        if not self._replica_manager.may_be_replaced():
            return
        try:
            await self._replica_manager.confirm_leadership([self._key(partition) for partition in partitions])
        except (ReplicaError, StorageError) as error:
            raise _translated(error) from error

    async def delete_below(self, partition: int, offset: int) -> None:
        """Delete what lies below an offset, here and on the other replicas."""
        key = self._key(partition)
        results = await self._replica_manager.delete_records(
            {key: offset}, timeout_ms=DELETE_TIMEOUT_MS, internal_topics_allowed=True
        )
        error = results[key].error
        if error is not None:
            raise _translated(error) from error


class _Appended(TurnWait):
    __slots__ = ("_manager", "_operation")

    def __init__(self, manager: ReplicaManager, operation: AppendOperation) -> None:
        self._manager = manager
        self._operation = operation

    @property
    def is_over(self) -> bool:
        return self._operation.is_complete

    async def __call__(self) -> None:
        await self._manager.finish_append(self._operation)


def _translated(error: Exception) -> CoordinatorError:
    if isinstance(error, NotLeaderError | UnknownTopicOrPartitionError | LogClosedError):
        return NotCoordinatorError(str(error))
    if isinstance(error, InvalidProducerEpochError | TransactionCoordinatorFencedError):
        return LaterEpochError(str(error))
    if isinstance(error, RecordTooLargeError):
        return StateTooLargeError(str(error))
    assert isinstance(error, ReplicaError | StorageError | RecordError | OSError)
    return CoordinatorNotAvailableError(str(error))
