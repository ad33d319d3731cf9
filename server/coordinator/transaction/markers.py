"""Writing the end of a transaction into every partition that takes part in it."""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol
from uuid import UUID

import trio

from ottla.kproto.records import EndTxnMarker, build_end_txn_marker
from ottla.server.coordinator.errors import CoordinatorError
from ottla.server.coordinator.group.config import OFFSETS_TOPIC
from ottla.server.coordinator.replica_log import ACKS_ALL
from ottla.server.coordinator.transaction.state import Partition
from ottla.server.errors import kept
from ottla.server.replica.append import Records, TopicIdPartition
from ottla.server.replica.errors import UnknownTopicOrPartitionError
from ottla.server.replica.manager import ReplicaManager
from ottla.storage.clock import Clock
from ottla.storage.errors import TransactionCoordinatorFencedError
from ottla.storage.log.partition_log import AppendOrigin

logger = logging.getLogger(__name__)

APPEND_TIMEOUT_MS: Final = 30_000
RETRY_BACKOFF_S: Final = 0.1


class MarkerSink(Protocol):
    """Where a coordinator's markers go."""

    async def write(self, partitions: Iterable[Partition], marker: EndTxnMarker) -> dict[Partition, Exception]:
        """Write the marker into each partition; returns those that failed and why. What is gone needs no marker."""
        ...


class GroupMarkers(Protocol):
    """The part of the group coordinator that ends transactions over offsets."""

    async def complete_transaction(self, partition: int, marker: EndTxnMarker) -> None: ...


class ReplicaMarkers:
    """Implements MarkerSink on the replica manager; offsets' partitions go through the group coordinator.

    All partitions of one call are one append: they are flushed together.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        groups: GroupMarkers,
        topic_id: Callable[[str], UUID | None],
        clock: Clock,
    ) -> None:
        self._replica_manager = replica_manager
        self._groups = groups
        self._topic_id = topic_id
        self._clock = clock

    async def write(
        self, partitions: Iterable[Partition], marker: EndTxnMarker, *, transaction_version: int = 0
    ) -> dict[Partition, Exception]:
        failed: dict[Partition, Exception] = {}
        entries: dict[TopicIdPartition, Records] = {}
        names: dict[TopicIdPartition, Partition] = {}
        for partition in partitions:
            topic_id = self._topic_id(partition.topic)
            if partition.topic == OFFSETS_TOPIC:
                await self._end_offsets(partition, marker, failed)
            elif topic_id is not None:
                key = TopicIdPartition(topic_id, partition.partition)
                batch = build_end_txn_marker(marker, timestamp_ms=self._clock.time_ms())
                entries[key] = Records(memoryview(bytearray(batch)))
                names[key] = partition
        if entries:
            results = await self._replica_manager.append(
                entries,
                required_acks=ACKS_ALL,
                timeout_ms=APPEND_TIMEOUT_MS,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=transaction_version,
            )
            for key, result in results.items():
                if result.error is not None and not isinstance(result.error, UnknownTopicOrPartitionError):
                    failed[names[key]] = result.error
        return failed

    async def _end_offsets(
        self, partition: Partition, marker: EndTxnMarker, failed: dict[Partition, Exception]
    ) -> None:
        try:
            await self._groups.complete_transaction(partition.partition, marker)
        except CoordinatorError as error:
            failed[partition] = kept(error)


async def write_everywhere(sink: MarkerSink, partitions: frozenset[Partition], marker: EndTxnMarker) -> None:
    """Write the marker until every partition has it, however long that takes.

    A partition that has seen a newer coordinator has its marker from there.
    """
    missing = set(partitions)
    while missing:
        failed = await sink.write(sorted(missing), marker)
        missing = {
            partition for partition, error in failed.items() if not isinstance(error, TransactionCoordinatorFencedError)
        }
        if missing:
            partition = min(missing)
            logger.warning(
                "producer %d: %d markers are not written yet, %s-%d because %s",
                marker.producer_id, len(missing), *partition, failed[partition],
                extra={"topic": partition[0], "partition": partition[1], "error": str(failed[partition])},
            )  # fmt: skip
            await trio.sleep(RETRY_BACKOFF_S)
