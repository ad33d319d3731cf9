"""The partitions of one Fetch request: what there is of each, and how they are asked for and answered."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchPartition, FetchTopic, PartitionData

if TYPE_CHECKING:
    from ottla.proxy.cache.cache import Cache
    from ottla.proxy.cache.flights import Route
    from ottla.proxy.cache.seen import Reader
    from ottla.proxy.cache.topics import Key, Name, Topic


class State(Enum):
    """The state of a wanted partition in the cache."""

    HIT = auto()  # records, which may be served
    CHECK = auto()  # records, but upstream has to be asked whether they may be served
    TAIL = auto()  # no records, and upstream had none either, just now
    MISS = auto()  # nothing


class Wanted:
    """One partition of a request: its state in the cache, and upstream's answer about it."""

    def __init__(self, name: Name, key: Key, asked: FetchPartition, leader_epoch: int, *, is_kept: bool) -> None:
        self.name = name
        self.key = key
        self.asked = asked
        self.leader_epoch = leader_epoch
        self.is_kept = is_kept and leader_epoch >= 0 and asked.last_fetched_epoch < 0
        self.state = State.MISS
        self.was_checked = False
        self.data: PartitionData | None = None

    def look_up(self, cache: Cache, reader: Reader) -> None:
        """Bring `state` up to date."""
        self.state = self._state(cache, reader)

    def _state(self, cache: Cache, reader: Reader) -> State:
        partition = cache.partition(self.key, self.leader_epoch) if self.is_kept else None
        if partition is None:
            return State.MISS
        offset = self.asked.fetch_offset
        end = partition.end_at(offset, reader.level)
        seen = partition.seen_by(reader)
        if seen is None or not seen.is_fresh() or not cache.readers.may(reader.identity, self.key[0]):
            return State.MISS if end < 0 else State.CHECK
        visible_end = seen.visible_end(reader.level)
        if end >= 0:
            return State.HIT if seen.log_start_offset <= offset and end <= visible_end else State.MISS
        return State.TAIL if offset == visible_end else State.MISS

    def answered(self, data: PartitionData) -> None:
        """Upstream has answered about it."""
        self.data = data

    def route(self, isolation_level: int) -> Route:
        """The route of a flight for it."""
        return (self.key, self.leader_epoch, self.asked.fetch_offset, isolation_level)

    def question(self) -> tuple[UUID, FetchPartition]:
        """The client's fetch, with the leader epoch that it may not know."""
        return self.key[0], FetchPartition(
            partition=self.asked.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.asked.fetch_offset,
            last_fetched_epoch=self.asked.last_fetched_epoch,
            partition_max_bytes=self.asked.partition_max_bytes,
        )

    def check(self, cache: Cache) -> tuple[UUID, FetchPartition]:
        """A question at the end of the partition, as far as that is known. Only in the state CHECK."""
        partition = cache.partition(self.key, self.leader_epoch)
        assert partition is not None
        self.was_checked = True
        return self.key[0], FetchPartition(
            partition=self.asked.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=partition.high_watermark,
            partition_max_bytes=1,
        )


def id_of(name: Name, topic: Topic | None) -> UUID:
    if topic is not None:
        return topic.topic_id
    assert isinstance(name, UUID)
    return name


def topics_of(partitions: Sequence[tuple[UUID, FetchPartition]]) -> list[FetchTopic]:
    """Partitions by their topics; the order of partitions is kept where they are neighbours."""
    topics: list[FetchTopic] = []
    for topic_id, partition in partitions:
        if not topics or topics[-1].topic_id != topic_id:
            topics.append(FetchTopic(topic_id=topic_id, partitions=[]))
        topics[-1].partitions.append(partition)
    return topics


def responses_of(results: Sequence[tuple[Wanted, PartitionData]]) -> list[FetchableTopicResponse]:
    """The answer, with the topics' names as the client calls them."""
    topics: list[FetchableTopicResponse] = []
    before: Name | None = None
    for one, data in results:
        if one.name != before:
            named = {"topic": one.name} if isinstance(one.name, str) else {"topic_id": one.name}
            topics.append(FetchableTopicResponse(partitions=[], **named))
            before = one.name
        topics[-1].partitions.append(data)
    return topics
