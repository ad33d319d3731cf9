"""Batches that a broker writes by itself to topics whose leaders may be other brokers: dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.kproto.errors import ErrorCode
from ottla.metadata.image import NO_LEADER
from ottla.replica.append import Records, TopicIdPartition
from ottla.replica.errors import InternalTopicError, MirroredTopicError, ReplicaError
from ottla.replica.partition import ACKS_ALL
from ottla.storage.errors import DiskFullError, LogClosedError, StoreOfflineError

if TYPE_CHECKING:
    from ottla.kproto.schema import Request
    from ottla.metadata.image import TopicImage
    from ottla.replica.manager import ReplicaManager

TIMEOUT_MS: Final = 30_000

_FINAL: Final = (InternalTopicError, MirroredTopicError)
_PASSING: Final = (ReplicaError, StoreOfflineError, DiskFullError, LogClosedError)


class WriteDelayedError(Exception):
    """The batch may or may not have been written; writing it may be possible later."""


class WriteRefusedError(Exception):
    """The batch was not written, and will not be however often it is tried."""


class Peers(Protocol):
    """The other brokers of the cluster."""

    async def call(self, node_id: int, request: Request, *, channel: str = ..., timeout_seconds: float = ...) -> Any:
        """The answer of a broker. Raises a ClientError."""


class BatchWriter:
    """Appends batches at the leaders of their partitions: at this node, or by a Produce to another one.

    All batches for another node share one connection. It owns no task: a caller may be cancelled at any time, and does
    not know then whether its batch was written.
    """

    def __init__(self, replica_manager: ReplicaManager, peers: Peers, channel: str) -> None:
        """`channel` names the connections that these batches use."""
        self._replica_manager = replica_manager
        self._peers = peers
        self._channel = channel

    async def write(self, topic: TopicImage, index: int, batch: bytes, *, timeout_ms: int = TIMEOUT_MS) -> None:
        """Return when all in-sync replicas of the partition have the batch.

        Raises WriteDelayedError or WriteRefusedError.
        """
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            raise WriteDelayedError(f"{topic.name}-{index} has no leader")
        if leader == self._replica_manager.node_id:
            await self._append(TopicIdPartition(topic.topic_id, index), batch, timeout_ms)
        else:
            await self._produce(leader, topic, index, batch, timeout_ms)

    async def _append(self, key: TopicIdPartition, batch: bytes, timeout_ms: int) -> None:
        records = Records(memoryview(bytearray(batch)))
        results = await self._replica_manager.append({key: records}, required_acks=ACKS_ALL, timeout_ms=timeout_ms)
        error = results[key].error
        if isinstance(error, _PASSING) and not isinstance(error, _FINAL):
            raise WriteDelayedError(str(error)) from error
        if error is not None:
            raise WriteRefusedError(str(error)) from error

    async def _produce(self, node_id: int, topic: TopicImage, index: int, batch: bytes, timeout_ms: int) -> None:
        from ottla.client.errors import ClientError
        from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData

        partition = PartitionProduceData(index=index, records=batch)
        data = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[partition])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=[data])
        # The other node gives up first.
        timeout_seconds = (timeout_ms + TIMEOUT_MS) / 1000
        try:
            answer = await self._peers.call(node_id, request, channel=self._channel, timeout_seconds=timeout_seconds)
            code = ErrorCode.of(answer.responses[0].partition_responses[0].error_code)
        except (ClientError, IndexError) as error:
            raise WriteDelayedError(f"node {node_id}: {error}") from error
        if code:
            kind = WriteDelayedError if code.retriable else WriteRefusedError
            raise kind(f"node {node_id} answered {code.name}")
