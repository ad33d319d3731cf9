"""Ends transactions that no coordinator will end (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any, Final

from ottla.client.client import Client
from ottla.client.connection import BrokerConnection
from ottla.client.errors import BrokerError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.kproto.messages.write_txn_markers import (
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
    """End the producer's open transaction in a partition; BrokerError if its leader refuses."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    answer = leader.call(WriteTxnMarkersRequest(markers=[marker]), at_most=_LAST_OF_ADMINISTRATORS)
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code:
        raise BrokerError(code, what=f"{topic}-{index}")


def abort_open_transactions(client: Client, topics: Collection[str], seconds: float) -> int:
    """Abort all open transactions in these topics, to which clients cannot write; returns how many there were.

    One that is open in several partitions counts once.
    """
    deadline = time.monotonic() + seconds
    ended: set[tuple[int, int]] = set()
    for topic, index in _partitions(client, topics):
        while True:
            try:
                ended |= _abort(client, topic, index)
                break
            except BrokerError as error:
                if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
    return len(ended)


def _partitions(client: Client, topics: Collection[str]) -> Iterator[tuple[str, int]]:
    for topic in client.metadata(sorted(topics)).topics:
        for partition in topic.partitions:
            yield topic.name or "", partition.partition_index


def _abort(client: Client, topic: str, index: int) -> set[tuple[int, int]]:
    state = next(it for it in client.topic(topic).partitions if it.partition_index == index)
    if state.leader_id < 0:
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it has no leader now", what=f"{topic}-{index}")
    leader = client.broker(state.leader_id)
    hanging = [it for it in producers_of(leader, topic, index) if it.current_txn_start_offset >= 0]
    for producer in hanging:
        write_abort_marker(leader, topic, index, producer)
    return {(it.producer_id, it.producer_epoch) for it in hanging}
