"""Topics as Metadata describes them, encoded once for all requests of a version, until they change.

A client of a topic with a thousand partitions asks for all of them again and again, and so does every other: encoding
them each time would take milliseconds of the event loop. The first time is done in steps.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto.errors import ErrorCode
from ottla.kproto.hot.metadata import EncodedTopic, encode_partitions, encode_topic
from ottla.kproto.messages.topics.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.metadata.changes.eligible_leaders import shown
from ottla.metadata.image import NO_LEADER, PartitionState, TopicImage
from ottla.runtime.time_slice import chunks

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.runtime.work import Work

_ENTRY_BYTES: Final = 400


class View(NamedTuple):
    """The view of a request: everything in it on which an answer about a topic depends."""

    version: int
    #: The living brokers that the request's listener leads to.
    reachable: frozenset[int]
    #: Living brokers that lack that listener.
    unreachable: frozenset[int]
    topic_operations: int
    #: Whether the cluster has eligible leaders.
    has_eligible: bool


class EncodedTopics:
    """Keeps what was encoded, at most `max_bytes` of it; the least recently used goes first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[UUID, View], tuple[TopicImage, EncodedTopic]] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, topic: TopicImage, view: View, work: Work) -> EncodedTopic:
        """The topic's part of a response."""
        kept = self.kept(topic, view)
        if kept is not None:
            return kept
        encoded = await _encode(topic, view, work)
        self._keep((topic.topic_id, view), topic, encoded)
        return encoded

    def kept(self, topic: TopicImage, view: View) -> EncodedTopic | None:
        """The topic's part of a response, if it has been encoded already."""
        key = (topic.topic_id, view)
        kept = self._entries.get(key)
        if kept is None or kept[0] is not topic:
            return None
        self._entries.move_to_end(key)
        return kept[1]

    def _keep(self, key: tuple[UUID, View], topic: TopicImage, encoded: EncodedTopic) -> None:
        former = self._entries.pop(key, None)
        if former is not None:
            self.size_bytes -= _size_of(former[1])
        if _size_of(encoded) > self._max_bytes:
            return
        self._entries[key] = (topic, encoded)
        self.size_bytes += _size_of(encoded)
        while self.size_bytes > self._max_bytes:
            _, (_, evicted) = self._entries.popitem(last=False)
            self.size_bytes -= _size_of(evicted)


def _size_of(encoded: EncodedTopic) -> int:
    return len(encoded.encoded) + _ENTRY_BYTES


async def _encode(topic: TopicImage, view: View, work: Work) -> EncodedTopic:
    pieces = []
    for some in chunks(enumerate(topic.partitions)):
        partitions = [_partition(number, state, view) for number, state in some]
        pieces.append(encode_partitions(partitions, view.version))
        await work.charge(0)
    head = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=view.topic_operations,
    )
    return encode_topic(head, view.version, len(topic.partitions), pieces)


def _partition(number: int, state: PartitionState, view: View) -> MetadataResponsePartition:
    code = ErrorCode.NONE
    leader = state.leader
    if leader not in view.reachable:
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if leader in view.unreachable and view.version >= 6:
            code = ErrorCode.LISTENER_NOT_FOUND
        leader = NO_LEADER
    return MetadataResponsePartition(
        error_code=code,
        partition_index=number,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(shown(state, enabled=view.has_eligible)[0]),
        offline_replicas=[replica for replica in state.replicas if replica not in view.reachable],
    )
