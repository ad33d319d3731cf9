"""Requests to other brokers: the client side of the handlers WriteTxnMarkers and AddPartitionsToTxn.

What many ask one broker at the same time is sent as one request (`Batches`). Markers wait for the other side's disks,
so they have a connection of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ottla.client.errors import ClientError, UnexpectedAnswerError
from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    LaterEpochError,
)
from ottla.coordinator.transaction.markers import APPEND_TIMEOUT_MS
from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch
from ottla.kproto.errors import ErrorCode, errors_by_code
from ottla.kproto.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.kproto.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.replica import errors as replica
from ottla.runtime import remote_time
from ottla.runtime.batches import Batches
from ottla.storage.errors import StoreOfflineError

if TYPE_CHECKING:
    from ottla.kproto.records import EndTxnMarker
    from ottla.kproto.schema import Request
    from ottla.server.cluster.peers import Peers

T = TypeVar("T")

MAX_BATCH: Final = 64
_MARKERS: Final = "markers"
_TRANSACTIONS: Final = "transactions"
_MARKERS_SECONDS: Final = APPEND_TIMEOUT_MS / 1000 + 10
"""The other side gives up before."""

_COORDINATOR_ERRORS: Final[Mapping[ErrorCode, type[CoordinatorError]]] = errors_by_code(CoordinatorError) | {
    # The coordinator's metadata is behind: it will know the partition in a moment.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CoordinatorLoadInProgressError,
    ErrorCode.OPERATION_NOT_ATTEMPTED: CoordinatorLoadInProgressError,
}
_MARKER_ERRORS: Final[Mapping[ErrorCode, type[Exception]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: replica.UnknownTopicOrPartitionError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: replica.NotLeaderError,
    ErrorCode.NOT_ENOUGH_REPLICAS: replica.NotEnoughReplicasError,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: replica.NotEnoughReplicasAfterAppendError,
    ErrorCode.REQUEST_TIMED_OUT: replica.RequestTimedOutError,
    ErrorCode.KAFKA_STORAGE_ERROR: StoreOfflineError,
    ErrorCode.INVALID_PRODUCER_EPOCH: LaterEpochError,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: LaterEpochError,
}


class RefusedError(Exception):
    """Another broker answered with an unexpected error."""


class _Markers(NamedTuple):
    partitions: Collection[Partition]
    marker: EndTxnMarker


class _Asked(NamedTuple):
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Collection[Partition]
    joins: bool


class PeerBrokers:
    """Implements OtherBrokers over `Peers`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._markers: dict[int, Batches[_Markers, Mapping[Partition, Exception]]] = {}
        self._transactions: dict[int, Batches[_Asked, Mapping[Partition, CoordinatorError]]] = {}

    async def write_markers(
        self, node_id: int, partitions: Collection[Partition], marker: EndTxnMarker
    ) -> Mapping[Partition, Exception]:
        batches = self._markers.get(node_id)
        if batches is None:
            send = partial(self._send_markers, node_id)
            batches = self._markers[node_id] = Batches(send, max_items=MAX_BATCH)
        try:
            return await batches.call(_Markers(partitions, marker))
        except ClientError as error:
            return dict.fromkeys(partitions, CoordinatorNotAvailableError(str(error)))

    async def take_part(
        self,
        node_id: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[Partition],
        *,
        joins: bool,
    ) -> Mapping[Partition, CoordinatorError]:
        batches = self._transactions.get(node_id)
        if batches is None:
            send = partial(self._ask, node_id)
            batches = self._transactions[node_id] = Batches(send, max_items=MAX_BATCH)
        try:
            with remote_time.Waiting():
                return await batches.call(_Asked(transactional_id, producer, partitions, joins))
        except ClientError as error:
            # As in Kafka: clients try again at the same broker, instead of looking for another coordinator.
            return dict.fromkeys(partitions, CoordinatorLoadInProgressError(str(error)))

    async def _send_markers(self, node_id: int, batch: Sequence[_Markers]) -> Sequence[Mapping[Partition, Exception]]:
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=marker.is_commit,
                    coordinator_epoch=marker.coordinator_epoch,
                    topics=[
                        WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                        for name, indexes in _by_topic(partitions).items()
                    ],
                )
                for partitions, marker in batch
            ]
        )
        response = await self._call(node_id, request, _MARKERS, _MARKERS_SECONDS)
        failed: list[dict[Partition, Exception]] = []
        for asked, answered in _matched(node_id, batch, response.markers):
            codes = {
                Partition(topic.name, it.partition_index): it.error_code
                for topic in answered.topics
                for it in topic.partitions
            }
            failed.append({it: _marker_error(node_id, code) for it, code in _failures(asked.partitions, codes)})
        return failed

    async def _ask(self, node_id: int, batch: Sequence[_Asked]) -> Sequence[Mapping[Partition, CoordinatorError]]:
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=asked.transactional_id,
                    producer_id=asked.producer.producer_id,
                    producer_epoch=asked.producer.epoch,
                    verify_only=not asked.joins,
                    topics=[
                        AddPartitionsToTxnTopic(name=name, partitions=indexes)
                        for name, indexes in _by_topic(asked.partitions).items()
                    ],
                )
                for asked in batch
            ]
        )
        response = await self._call(node_id, request, _TRANSACTIONS)
        refused: list[dict[Partition, CoordinatorError]] = []
        for asked, answered in _matched(node_id, batch, response.results_by_transaction):
            codes = {
                Partition(topic.name, it.partition_index): it.partition_error_code
                for topic in answered.topic_results
                for it in topic.results_by_partition
            }
            refused.append({it: _coordinator_error(node_id, code) for it, code in _failures(asked.partitions, codes)})
        return refused

    async def _call(self, node_id: int, request: Request, channel: str, timeout_seconds: float = 30.0) -> Any:
        return await self._peers.call(node_id, request, channel=channel, timeout_seconds=timeout_seconds)


def _matched(node_id: int, batch: Sequence[T], answers: Sequence[Any]) -> Iterator[tuple[T, Any]]:
    """Each that was asked with its answer: as many as were asked, or none is believed."""
    if len(answers) != len(batch):
        raise UnexpectedAnswerError(f"node {node_id} answered {len(answers)} of {len(batch)} transactions")
    return zip(batch, answers, strict=True)


def _failures(partitions: Collection[Partition], codes: Mapping[Partition, int]) -> Iterator[tuple[Partition, int]]:
    """The partitions that failed, also those that were not answered, with their error codes."""
    for partition in partitions:
        code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code:
            yield partition, code


def _by_topic(partitions: Collection[Partition]) -> Mapping[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def _marker_error(node_id: int, code: int) -> Exception:
    known = ErrorCode.of(code)
    return _MARKER_ERRORS.get(known, RefusedError)(f"node {node_id} answered {known.name}")


def _coordinator_error(node_id: int, code: int) -> CoordinatorError:
    known = ErrorCode.of(code)
    return _COORDINATOR_ERRORS.get(known, CoordinatorNotAvailableError)(f"node {node_id} answered {known.name}")
