"""Changes of many partitions' states in few transactions, each safe against others that change them meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.metadata import keys
from ottla.metadata.changes.eligible_leaders import min_in_sync as min_in_sync_of
from ottla.metadata.changes.eligible_leaders import with_eligible
from ottla.metadata.errors import UnknownTopicError
from ottla.metadata.image import PartitionState
from ottla.metastore.errors import MetadataError
from ottla.metastore.store import Compare, Operation, Put
from ottla.runtime.errors import kept
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metadata.changes.partition_changes import PartitionUpdate
    from ottla.metadata.changes.transactions import Plan, Planner, RevisionOf
    from ottla.metadata.image import MetadataImage, TopicImage
    from ottla.settings.config import BrokerConfig

#: etcd takes 128 comparisons a transaction; the rest is left for the keys of brokers.
_PARTITIONS_AND_TOPICS: Final = 96

PartitionKey = tuple["UUID", int]
PartitionOutcome = PartitionState | MetadataError


def in_transactions(asked: Mapping[PartitionKey, PartitionUpdate]) -> Iterator[dict[PartitionKey, PartitionUpdate]]:
    """The updates, divided into parts that a store takes in one transaction."""
    part: dict[PartitionKey, PartitionUpdate] = {}
    topics: set[UUID] = set()
    for key, update in asked.items():
        if len(part) + len(topics | {key[0]}) >= _PARTITIONS_AND_TOPICS:
            yield part
            part, topics = {}, set()
        part[key] = update
        topics.add(key[0])
    if part:
        yield part


async def changes_of_all(
    image: MetadataImage, update: Callable[[PartitionState, int, Container[int]], PartitionState], node_id: int
) -> dict[PartitionKey, PartitionUpdate]:
    """The partitions that an update about one broker changes; it gets the state, the broker and the live brokers."""
    live = frozenset(broker.node_id for broker in image.live_brokers())
    changes: dict[PartitionKey, PartitionUpdate] = {}

    def change(state: PartitionState) -> PartitionState:
        return update(state, node_id, live)

    time_slice = TimeSlice()
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if time_slice.is_over:
                await time_slice.maybe_yield()
            if change(state) is not state:
                changes[topic.topic_id, index] = change
    return changes


def states_change(
    asked: Mapping[PartitionKey, PartitionUpdate], config: BrokerConfig
) -> Planner[dict[PartitionKey, PartitionOutcome]]:
    """One part of `Controller.change_partitions`."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[dict[PartitionKey, PartitionOutcome]]:
        return plan_changes(asked, image, revision_of, min_in_sync_of(image, config))

    return plan


def plan_changes(
    asked: Mapping[PartitionKey, PartitionUpdate],
    image: MetadataImage,
    revision_of: Callable[[str], int],
    min_in_sync: Callable[[TopicImage], int | None],
) -> tuple[list[Compare], list[Operation], dict[PartitionKey, PartitionOutcome]]:
    """The transaction that takes each partition from its state in the image to the one that its update says.

    Eligible leaders outside the in-sync set are decided here, alike for every update: `min_in_sync` says from how many
    replicas of a topic in sync on nobody else may, and None if nobody else ever may. Besides the partition it compares

    - its topic, so that nothing is left of a partition whose topic is deleted meanwhile;
    - the starts of the broker that led: a start raises the epoch of all that the broker leads, and a leader that is
      elected meanwhile must not get the same epoch. Nor may a late request of the leader's former process add anybody
      to the in-sync set, as the present one would not count them yet;
    - the registration of each broker that joins the in-sync set: a broker that has registered again may have lost what
      it had (KIP-903).
    """
    watched: set[str] = set()
    operations: list[Operation] = []
    results: dict[PartitionKey, PartitionOutcome] = {}
    for (topic_id, index), update in asked.items():
        try:
            topic = image.topic_by_id(topic_id)
            if topic is None or not 0 <= index < len(topic.partitions):
                raise UnknownTopicError("This server does not host this topic-partition.")
            before = topic.partitions[index]
            after = update(before)
            if after != before:
                after = with_eligible(before, after, min_in_sync(topic))
        except MetadataError as error:
            results[topic_id, index] = kept(error)
            continue
        results[topic_id, index] = after
        if after == before:
            continue
        assert after.partition_epoch > before.partition_epoch, (before, after)
        assert after.leader == before.leader or after.leader_epoch > before.leader_epoch, (before, after)
        key = keys.partition(topic_id, index)
        operations.append(Put(key, keys.encode_partition(after, image.starts)))
        watched.update((key, keys.topic(topic.name)))
        joining = [broker for broker in after.isr if broker not in before.isr]
        if joining or after.leader != before.leader:
            watched.add(keys.starts(before.leader))
        watched.update(map(keys.broker, joining))
    return [Compare(key, revision_of(key)) for key in sorted(watched)], operations, results
