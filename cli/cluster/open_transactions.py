"""Ends transactions that no coordinator will end (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from ottla.client.client import Client
from ottla.client.connection import BrokerConnection
from ottla.client.errors import BrokerError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.kproto.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

_LAST_OF_ADMINISTRATORS: Final = 1
_RETRY_SECONDS: Final = 0.1


def producers_of(leader: BrokerConnection, topic: str, index: int) -> list[Any]:
    """The producers of a partition, as its leader describes them."""
    asked = [TopicRequest(name=topic, partition_indexes=[index])]
    (partition,) = leader.call(DescribeProducersRequest(topics=asked)).topics[0].partitions
    if partition.error_code:
        raise BrokerError(partition.error_code, partition.error_message, what=f"{topic}-{index}")
    return list(partition.active_producers)


def write_abort_marker(leader: BrokerConnection, topic: str, index: int, producer: Any) -> None:
    """Abort the producer's open transaction in a partition; BrokerError if its leader refuses."""
    _write_marker(leader, topic, index, producer, is_commit=False)


def _write_marker(leader: BrokerConnection, topic: str, index: int, producer: Any, *, is_commit: bool) -> None:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    answer = leader.call(WriteTxnMarkersRequest(markers=[marker]), at_most=_LAST_OF_ADMINISTRATORS)
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code:
        raise BrokerError(code, what=f"{topic}-{index}")


def open_producers(client: Client, topics: Collection[str], seconds: float) -> set[int]:
    """The producer ids that have a transaction open in these topics."""
    found = _of_each_partition(client, topics, seconds, _open_in)
    return {it.producer_id for it in found}


def end_open_transactions(
    client: Client, topics: Collection[str], seconds: float, committed: Collection[int] = ()
) -> tuple[int, int]:
    """Commit the open transactions of the producer ids `committed` in these topics, to which clients cannot write, and
    abort all others; returns how many were aborted and committed.

    One that is open in several partitions counts once.
    """

    def end(client: Client, topic: str, index: int) -> list[Any]:
        hanging = _open_in(client, topic, index)
        for producer in hanging:
            is_commit = producer.producer_id in committed
            _write_marker(_leader(client, topic, index), topic, index, producer, is_commit=is_commit)
        return hanging

    found = _of_each_partition(client, topics, seconds, end)
    ended = {(it.producer_id, it.producer_epoch) for it in found}
    commits = sum(producer_id in committed for producer_id, _ in ended)
    return len(ended) - commits, commits


def _of_each_partition(
    client: Client, topics: Collection[str], seconds: float, work: Callable[[Client, str, int], list[Any]]
) -> list[Any]:
    """The outcome for each partition from its leader, which may be about to change."""
    deadline = time.monotonic() + seconds
    found: list[Any] = []
    for topic, index in _partitions(client, topics):
        while True:
            try:
                found += work(client, topic, index)
                break
            except BrokerError as error:
                if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
    return found


def _partitions(client: Client, topics: Collection[str]) -> Iterator[tuple[str, int]]:
    for topic in client.metadata(sorted(topics)).topics:
        for partition in topic.partitions:
            yield topic.name or "", partition.partition_index


def _open_in(client: Client, topic: str, index: int) -> list[Any]:
    described = producers_of(_leader(client, topic, index), topic, index)
    return [it for it in described if it.current_txn_start_offset >= 0]


def _leader(client: Client, topic: str, index: int) -> BrokerConnection:
    state = next(it for it in client.topic(topic).partitions if it.partition_index == index)
    if state.leader_id < 0:
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it has no leader now", what=f"{topic}-{index}")
    return client.broker(state.leader_id)
