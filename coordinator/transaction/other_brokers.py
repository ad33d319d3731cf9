"""Transactions across several brokers: where a coordinator's markers go, and whom a partition's leader asks.

A transaction has one coordinator, and its partitions may be led by any broker. This module chooses the broker to ask;
`OtherBrokers` does the asking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import trio

from ottla.coordinator.errors import CoordinatorError, CoordinatorNotAvailableError
from ottla.coordinator.partitioning import coordinator_partition
from ottla.metadata.image import NO_LEADER
from ottla.metadata.internal_topics import TRANSACTION_STATE
from ottla.replica.errors import NotLeaderError
from ottla.runtime.errors import kept

if TYPE_CHECKING:
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.coordinator.transaction.markers import MarkerSink
    from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch
    from ottla.kproto.records import EndTxnMarker
    from ottla.metadata.image import MetadataView

Refusals = Mapping["Partition", CoordinatorError]


class OtherBrokers(Protocol):
    """Requests to other brokers for transactions. A broker that cannot be reached counts as a failure."""

    async def write_markers(
        self, node_id: int, partitions: Collection[Partition], marker: EndTxnMarker
    ) -> Mapping[Partition, Exception]:
        """Write the marker into partitions that a broker leads; returns those that failed and why."""
        ...

    async def take_part(
        self,
        node_id: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[Partition],
        *,
        joins: bool,
    ) -> Refusals:
        """`TransactionVerifier.verify` at the broker that coordinates the transaction."""
        ...


class TransactionCluster(Protocol):
    """Who coordinates transactions, here and elsewhere; each is set up when somebody first asks for it."""

    @property
    def transactions(self) -> TransactionCoordinator: ...
    @property
    def other_brokers(self) -> OtherBrokers: ...


class ClusterMarkers:
    """Implements MarkerSink across all brokers: the leaders of the partitions write, all of them at the same time."""

    def __init__(self, local: MarkerSink, cluster: TransactionCluster, metadata: MetadataView, *, node_id: int) -> None:
        self._local = local
        self._cluster = cluster
        self._metadata = metadata
        self._node_id = node_id

    async def write(self, partitions: Iterable[Partition], marker: EndTxnMarker) -> dict[Partition, Exception]:
        """A deleted partition needs no marker; one without a leader fails."""
        failed: dict[Partition, Exception] = {}
        by_leader: dict[int, list[Partition]] = {}
        image = self._metadata.image
        for partition in partitions:
            state = image.partition(*partition)
            if state is not None and state.leader == NO_LEADER:
                failed[partition] = NotLeaderError(f"{partition.topic}-{partition.partition} has no leader")
            elif state is not None:
                by_leader.setdefault(state.leader, []).append(partition)

        async def write(leader: int, led: Collection[Partition]) -> None:
            if leader == self._node_id:
                failed.update(await self._local.write(led, marker))
            else:
                failed.update(await self._cluster.other_brokers.write_markers(leader, led, marker))

        async with trio.open_nursery() as nursery:
            for leader, led in by_leader.items():
                nursery.start_soon(write, leader, led)
        return failed


class TransactionVerifier:
    """Sees to it that partitions take part in a producer's transaction, whichever broker coordinates it (KIP-890)."""

    def __init__(self, cluster: TransactionCluster, metadata: MetadataView, *, node_id: int) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._node_id = node_id

    async def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[Partition], *, joins: bool
    ) -> Refusals:
        """Returns the partitions that do not take part in the ongoing transaction, and why.

        With `joins` they take part from now on, if the producer may add them. The transaction may be over when this
        returns, so a write to a partition takes a guard first, which the transaction's markers end.
        """
        coordinator = self._coordinator(transactional_id)
        if coordinator == NO_LEADER:
            error = CoordinatorNotAvailableError(f"nobody coordinates {transactional_id} now")
            return dict.fromkeys(partitions, error)
        if coordinator != self._node_id:
            return await self._cluster.other_brokers.take_part(
                coordinator, transactional_id, producer, partitions, joins=joins
            )
        transactions = self._cluster.transactions
        refused: dict[Partition, CoordinatorError] = {}
        try:
            if joins:
                await transactions.add_partitions(transactional_id, producer, partitions, 2)
                return refused
            await transactions.confirm(transactional_id)
        except CoordinatorError as error:
            return dict.fromkeys(partitions, kept(error))
        for partition in partitions:
            try:
                transactions.verify(transactional_id, producer, partition)
            except CoordinatorError as error:
                refused[partition] = kept(error)
        return refused

    async def until_settled(self, transactional_id: str, seconds: float) -> None:
        """Wait until a producer's last transaction is over, as far as that is known here, and no longer than this."""
        if seconds > 0 and self._coordinator(transactional_id) == self._node_id:
            with suppress(CoordinatorError), trio.move_on_after(seconds):
                await self._cluster.transactions.until_settled(transactional_id)

    def _coordinator(self, transactional_id: str) -> int:
        topic = self._metadata.image.topic(TRANSACTION_STATE)
        if topic is None:
            return NO_LEADER
        return topic.partitions[coordinator_partition(transactional_id, len(topic.partitions))].leader
