"""Partitions by name, and the offsets at which they begin, end, or reach a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from ottla.client.client import Client

EARLIEST: Final = -2
LATEST: Final = -1
"""The timestamps by which ListOffsets names a log's ends; Spark's JSON uses the same numbers as offsets."""

EARLIEST_LOCAL: Final = -4
"""Where the log begins on its leader's disk (KIP-405)."""

NO_LEADER: Final = -1
_CONSUMER: Final = -1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def list_offsets_request(
    timestamps_ms: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> ListOffsetsRequest:
    """Asks a leader for the offset of the first record at or after each timestamp, or for EARLIEST or LATEST."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for part, timestamp_ms in timestamps_ms.items():
        asked = ListOffsetsPartition(partition_index=part.partition, timestamp=timestamp_ms)
        topics.setdefault(part.topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )


def partitions_of(client: Client, topic: str) -> list[TopicPartition]:
    """All partitions of a topic. Raises UnknownTopicError if there is no such topic."""
    return sorted(TopicPartition(topic, state.partition_index) for state in client.topic(topic).partitions)


def offsets_at(
    client: Client, partitions: Iterable[TopicPartition], timestamp_ms: int, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """The offset of the first record at or after a timestamp (-1: there is none), or EARLIEST or LATEST.

    Partitions that do not exist or have no leader now are left out.
    """
    wanted = set(partitions)
    topics = client.metadata(sorted({part.topic for part in wanted})).topics if wanted else []
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for topic in topics:
        for state in topic.partitions:
            part = TopicPartition(topic.name or "", state.partition_index)
            if part in wanted and state.leader_id != NO_LEADER:
                by_leader.setdefault(state.leader_id, {})[part] = timestamp_ms
    return {
        TopicPartition(topic.name, answer.partition_index): answer.offset
        for leader, asked in sorted(by_leader.items())
        for topic in client.broker(leader).call(list_offsets_request(asked, read_committed=read_committed)).topics
        for answer in topic.partitions
        if not answer.error_code
    }
