"""Reads partitions from their leaders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

import trio

from ottla.client.errors import BrokerError, ClientError, ConnectionLostError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.records import Record, iter_batches, iter_records
from ottla.rest.cluster import Address, Cluster

_NO_SESSION_EPOCH: Final = -1
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class Fetched(NamedTuple):
    """A partition's bytes from the offset that was asked for; none if that is out of its range."""

    data: memoryview
    is_out_of_range: bool = False


class Read(NamedTuple):
    """A partition's records, and where to go on."""

    records: list[Record]
    next_offset: int


async def fetch(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], max_bytes: int, max_wait_ms: int
) -> dict[TopicPartition, Fetched]:
    """The next records of these partitions; waits until one of them has any.

    A leader that is not reached is left out, unless none is; what one refuses is raised. Raises ClientError.

    The connections are held up for so long: the caller has a `Cluster` of its own, and waits a little at a time.
    """
    by_leader = await _leaders(cluster, offsets)
    found: dict[TopicPartition, Fetched] = {}
    failures: list[ClientError] = []

    async def one(address: Address, topics: list[FetchTopic]) -> None:
        try:
            found.update(await _ask(cluster, address, topics, max_bytes, max_wait_ms))
        except ClientError as error:
            failures.append(error)
        if found:
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for address, topics in by_leader.items():
            nursery.start_soon(one, address, topics)
    refusals = [error for error in failures if not isinstance(error, ConnectionLostError)]
    if not found and (refusals or (failures and len(failures) == len(by_leader))):
        raise (refusals or failures)[0]
    return found


async def _ask(
    cluster: Cluster, address: Address, topics: list[FetchTopic], max_bytes: int, wait_ms: int
) -> dict[TopicPartition, Fetched]:
    names = {topic.topic_id: topic.topic for topic in topics}
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, session_epoch=_NO_SESSION_EPOCH, topics=topics
    )
    answer: Any = await (await cluster.connection(address)).call(request)
    if answer.error_code:
        raise BrokerError(answer.error_code, what="a fetch")
    found = {}
    for topic in answer.responses:
        for state in topic.partitions:
            part = TopicPartition(topic.topic or names[topic.topic_id], state.partition_index)
            if state.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                found[part] = Fetched(memoryview(b""), is_out_of_range=True)
            elif state.error_code and state.error_code not in _PASSING:
                raise BrokerError(state.error_code, what=str(part))
            elif state.records:
                found[part] = Fetched(memoryview(state.records))
    return found


async def _leaders(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[Address, list[FetchTopic]]:
    answer = await cluster.metadata(sorted({part.topic for part in offsets}))
    addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    found: dict[Address, dict[tuple[str, UUID], list[FetchPartition]]] = {}
    for topic in answer.topics:
        for state in topic.partitions:
            part, address = TopicPartition(topic.name or "", state.partition_index), addresses.get(state.leader_id)
            if part in offsets and address is not None:
                asked = FetchPartition(
                    partition=part.partition, fetch_offset=offsets[part], partition_max_bytes=_share(len(offsets))
                )
                found.setdefault(address, {}).setdefault((part.topic, topic.topic_id), []).append(asked)
    return {
        address: [FetchTopic(topic=name, topic_id=topic_id, partitions=parts) for (name, topic_id), parts in it.items()]
        for address, it in found.items()
    }


def _share(partition_count: int) -> int:
    """The limit in bytes for each of so many partitions in one fetch."""
    return max(16 * 1024, 1024 * 1024 // partition_count)


def read(data: memoryview, offset: int, limit_bytes: int) -> Read:
    """The records from an offset on, up to about a size; without markers of transactions."""
    records: list[Record] = []
    size_bytes, next_offset = 0, offset
    for start, header in iter_batches(data):
        if not header.is_control:
            for record in iter_records(data, start, header):
                if record.offset < offset:
                    continue
                size = len(record.key or b"") + len(record.value or b"")
                if records and size_bytes + size > limit_bytes:
                    return Read(records, next_offset)
                records.append(record)
                size_bytes += size
                next_offset = record.offset + 1
        next_offset = max(next_offset, header.next_offset)
    return Read(records, next_offset)
