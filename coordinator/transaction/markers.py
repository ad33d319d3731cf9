"""Writing the end of a transaction into every partition that takes part in it.

What a partition may answer and what follows from it, compared with TransactionMarkerRequestCompletionHandler of Kafka
4.3.1:

- UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
  REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR, or, for `__consumer_offsets`, that its coordinator is away or loading: the
  marker is written again, until the partition has it or is no longer in the metadata.
- INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: the partition has a marker of a later epoch, which has ended
  whatever this one would end, and needs no other. Kafka gives up the whole transaction: it stays prepared, and its id
  is answered CONCURRENT_TRANSACTIONS for good.
- Anything else is unexpected, and logged as an error. Kafka leaves the transaction prepared until its coordinator is
  loaded again; here the marker is written again, so that no restart is needed once the cause is gone
  (`max.message.bytes`, for example).
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final, Protocol
from uuid import UUID

import trio

from ottla.coordinator.errors import CoordinatorError, LaterEpochError
from ottla.coordinator.group.config import OFFSETS_TOPIC
from ottla.coordinator.replica_log import ACKS_ALL
from ottla.coordinator.transaction.state import Partition
from ottla.kproto.records import EndTxnMarker, build_end_txn_marker
from ottla.replica.append import Records, TopicIdPartition
from ottla.replica.errors import ReplicaError, RequestTimedOutError
from ottla.replica.manager import ReplicaManager
from ottla.runtime.backoff import Backoff
from ottla.runtime.errors import kept
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.clock import Clock
from ottla.storage.errors import (
    InvalidProducerEpochError,
    LogClosedError,
    StoreOfflineError,
    TransactionCoordinatorFencedError,
)
from ottla.storage.log.partition_log import AppendOrigin

logger = logging.getLogger(__name__)

APPEND_TIMEOUT_MS: Final = 30_000
FIRST_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 1.0

_NOT_NEEDED: Final = (InvalidProducerEpochError, TransactionCoordinatorFencedError, LaterEpochError)
_PASSING: Final = (ReplicaError, StoreOfflineError, LogClosedError, CoordinatorError)


class MarkerSink(Protocol):
    """The receiver of a coordinator's markers."""

    async def write(self, partitions: Iterable[Partition], marker: EndTxnMarker) -> dict[Partition, Exception]:
        """Write the marker into each partition; returns those that failed and why. What is gone needs no marker.

        A partition that does not answer in time counts as failed: the call always ends.
        """
        ...


class GroupMarkers(Protocol):
    """The part of the group coordinator that ends transactions with offsets."""

    async def complete_transaction(self, partition: int, marker: EndTxnMarker) -> None: ...


class PartitionTopics(Protocol):
    """The topics of the partitions that there are."""

    def topic_id_of(self, topic: str, partition: int) -> UUID | None:
        """None for a partition that does not exist."""


class ReplicaMarkers:
    """Implements MarkerSink on the replica manager; partitions of offsets go through the group coordinator.

    All partitions of one call are written at the same time, those of data as one append: they are flushed together. No
    partition waits for another, or longer than APPEND_TIMEOUT_MS (Kafka's KafkaApis.handleWriteTxnMarkersRequest).
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        groups: GroupMarkers,
        topics: PartitionTopics,
        clock: Clock,
    ) -> None:
        self._replica_manager = replica_manager
        self._groups = groups
        self._topics = topics
        self._clock = clock

    async def write(
        self, partitions: Iterable[Partition], marker: EndTxnMarker, *, transaction_version: int = 0
    ) -> dict[Partition, Exception]:
        failed: dict[Partition, Exception] = {}
        of_offsets: list[Partition] = []
        of_data: dict[TopicIdPartition, Partition] = {}
        time_slice = TimeSlice()
        for partition in dict.fromkeys(partitions):
            await time_slice.maybe_yield()
            topic_id = self._topics.topic_id_of(*partition)
            if topic_id is None:
                continue
            if partition.topic == OFFSETS_TOPIC:
                of_offsets.append(partition)
            else:
                of_data[TopicIdPartition(topic_id, partition.partition)] = partition
        if not of_offsets:
            await self._append(of_data, marker, failed, transaction_version)
            return failed
        async with trio.open_nursery() as nursery:
            for partition in of_offsets:
                nursery.start_soon(self._end_offsets, partition, marker, failed)
            await self._append(of_data, marker, failed, transaction_version)
        return failed

    async def _append(
        self,
        partitions: Mapping[TopicIdPartition, Partition],
        marker: EndTxnMarker,
        failed: dict[Partition, Exception],
        transaction_version: int,
    ) -> None:
        if not partitions:
            return
        batch = build_end_txn_marker(marker, timestamp_ms=self._clock.time_ms())
        results = await self._replica_manager.append(
            # Each its own memory: a partition writes its offsets into it.
            {key: Records(memoryview(bytearray(batch))) for key in partitions},
            required_acks=ACKS_ALL,
            timeout_ms=APPEND_TIMEOUT_MS,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=transaction_version,
        )
        time_slice = TimeSlice()
        for key, result in results.items():
            await time_slice.maybe_yield()
            if result.error is not None:
                failed[partitions[key]] = result.error

    async def _end_offsets(
        self, partition: Partition, marker: EndTxnMarker, failed: dict[Partition, Exception]
    ) -> None:
        with trio.move_on_after(APPEND_TIMEOUT_MS / 1000) as patience:
            try:
                await self._groups.complete_transaction(partition.partition, marker)
            except CoordinatorError as error:
                failed[partition] = kept(error)
        if patience.cancelled_caught:
            seconds = APPEND_TIMEOUT_MS // 1000
            failed[partition] = RequestTimedOutError(f"{OFFSETS_TOPIC}-{partition.partition} took over {seconds} s")


async def write_everywhere(sink: MarkerSink, partitions: frozenset[Partition], marker: EndTxnMarker) -> None:
    """Write the marker until every partition has it or no longer needs it, however long that takes."""
    missing = set(partitions)
    backoff = Backoff(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
    logged = ""
    while missing:
        failed = await sink.write(sorted(missing), marker)
        missing = {partition for partition, error in failed.items() if not isinstance(error, _NOT_NEEDED)}
        if missing:
            logged = _log_missing(marker, len(missing), min(missing), failed[min(missing)], logged)
            await backoff.wait()


def _log_missing(marker: EndTxnMarker, count: int, partition: Partition, error: Exception, logged: str) -> str:
    """Log why markers are missing, unless the last line is the same; returns what was logged last."""
    text = f"{count} markers are not written yet; for {partition.topic}-{partition.partition}: {error}"
    if text != logged:
        level = logging.WARNING if isinstance(error, _PASSING) else logging.ERROR
        keys = {"topic": partition.topic, "partition": partition.partition, "error": str(error)}
        logger.log(level, "producer %d: %s", marker.producer_id, text, extra=keys)
    return text
