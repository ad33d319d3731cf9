"""Producer ids, and transactions of a transactional id, step by step.

The versions of requests are those from before transactions v2 (KIP-890): every broker has them, and a transaction's
end leaves its epoch as it was. So any process that knows the producer id and the epoch can end it, however often, and
learns how it ended: which is what a commit in two phases needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.kproto.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.kproto.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.kproto.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.schema import Request
from ottla.pipeline.client.answers import check
from ottla.pipeline.client.cluster import Cluster, CoordinatorType
from ottla.pipeline.errors import FencedError, OptionError

__all__ = ["ProducerIdentity", "Transaction", "end_transaction", "fence", "is_open", "new_identity"]

_INIT_PRODUCER_ID: Final = 5
_ADD_PARTITIONS: Final = 3
_ADD_OFFSETS: Final = 3
_COMMIT_OFFSETS: Final = 3
_END: Final = 3
_DESCRIBE: Final = 0
_ONGOING: Final = "Ongoing"


class ProducerIdentity(NamedTuple):
    """As whom batches are sent. A transactional id makes them part of its transaction."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None


def new_identity(cluster: Cluster) -> ProducerIdentity:
    """An id of its own, for an idempotent producer."""

    def ask() -> ProducerIdentity:
        answer = cluster.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), at_most=_INIT_PRODUCER_ID
        )
        check(answer.error_code, "a producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return cluster.retry(ask)


def fence(cluster: Cluster, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
    """Take a transactional id over: what an earlier producer of it left open is aborted, and it can do no more."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def ask() -> ProducerIdentity:
        answer = cluster.call_coordinator(CoordinatorType.TRANSACTION, transactional_id, request, _INIT_PRODUCER_ID)
        if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise OptionError(
                f"Option kafka.transaction.timeout.ms is {timeout_ms}, which is more than the broker's "
                "transaction.max.timeout.ms allows: write a smaller one."
            )
        check(answer.error_code, f"transactional id {transactional_id}")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch, transactional_id)

    return cluster.retry(ask)


def end_transaction(cluster: Cluster, identity: ProducerIdentity, *, commit: bool) -> None:
    """End the transaction of that id and epoch; nothing happens if it has ended so already.

    FencedError if it ended the other way, by its timeout or by a newer producer of its transactional id.
    """
    request = EndTxnRequest(
        transactional_id=_transactional_id(identity),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )
    _coordinated(cluster, identity, request, _END)


def is_open(cluster: Cluster, identity: ProducerIdentity) -> bool:
    """Whether the transaction is still under way."""
    transactional_id = _transactional_id(identity)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

    def ask() -> bool:
        answer = cluster.call_coordinator(CoordinatorType.TRANSACTION, transactional_id, request, _DESCRIBE)
        (state,) = answer.transaction_states
        if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return False
        check(state.error_code, f"transactional id {transactional_id}")
        found: tuple[int, int] = (state.producer_id, state.producer_epoch)
        return bool(state.transaction_state == _ONGOING) and found == identity[:2]

    return cluster.retry(ask)


class Transaction:
    """One transaction. Each belongs to an epoch of its own: one is begun by `fence`."""

    def __init__(self, cluster: Cluster, identity: ProducerIdentity) -> None:
        self.identity = identity
        self._cluster = cluster
        self._partitions: set[TopicPartition] = set()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction, before the first batch for them is sent."""
        new = set(partitions) - self._partitions
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for part in sorted(new):
            topics.setdefault(part.topic, []).append(part.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=_transactional_id(self.identity),
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=held) for name, held in topics.items()],
        )

        def codes(answer: Any) -> Iterable[int]:
            return (
                part.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
                # Of those it says no more than that another one was refused.
                if part.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED
            )

        _coordinated(self._cluster, self.identity, request, _ADD_PARTITIONS, codes)
        self._partitions |= new

    def commit_offset(self, group: str, partition: TopicPartition, offset: int, metadata: str) -> None:
        """Store an offset of a group with the transaction."""
        identity = self.identity
        transactional_id = _transactional_id(identity)
        _coordinated(
            self._cluster,
            identity,
            AddOffsetsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group,
            ),
            _ADD_OFFSETS,
        )
        entry = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[entry])],
        )

        def ask() -> None:
            answer = self._cluster.call_coordinator(CoordinatorType.GROUP, group, request, _COMMIT_OFFSETS)
            check(answer.topics[0].partitions[0].error_code, f"an offset of group {group}")

        self._cluster.retry(ask)


def _transactional_id(identity: ProducerIdentity) -> str:
    assert identity.transactional_id is not None, "a producer without transactions"
    return identity.transactional_id


def _coordinated(
    cluster: Cluster, identity: ProducerIdentity, request: Request, at_most: int, codes: Any = None
) -> None:
    """Ask the transaction's coordinator, until it answers without an error that passes."""
    transactional_id = _transactional_id(identity)

    def ask() -> None:
        answer = cluster.call_coordinator(CoordinatorType.TRANSACTION, transactional_id, request, at_most)
        for code in [answer.error_code] if codes is None else codes(answer):
            try:
                check(code, f"transactional id {transactional_id}")
            except FencedError as error:
                raise FencedError(f"{error} Its transaction took too long, or another run has taken over.") from None

    cluster.retry(ask)
