"""Transactions that create and delete topics, and add partitions to them.

Many topics share one transaction, and each has a result of its own. Kafka's counterpart is
org.apache.kafka.controller.ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.metadata import keys
from ottla.metadata.changes.topic_changes import (
    NewPartitions,
    NewTopic,
    added_partitions,
    begin,
    partitions_of,
    plan_partitions,
    plan_topic,
)
from ottla.metadata.errors import TopicDeletionDisabledError, UnknownTopicError, UnknownTopicIdError
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.topic_names import CollisionIndex
from ottla.metastore.errors import MetadataError, PolicyViolationError
from ottla.metastore.store import Compare, Delete, DeletePrefix, Operation, Put
from ottla.runtime.errors import kept
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.metadata.changes.transactions import Plan, Planner, RevisionOf
    from ottla.settings.config import BrokerConfig

#: Counts partitions that a topic gains or loses against a client's quota; raises ThrottlingQuotaExceededError.
TakeQuota = Callable[[str, int], None]

#: Partitions that one request may create.
MAX_PARTITIONS_PER_REQUEST: Final = 10_000


def creation(
    topics: Sequence[NewTopic],
    config: BrokerConfig,
    collisions: CollisionIndex,
    new_id: Callable[[], UUID],
    take_quota: TakeQuota | None,
    *,
    validate_only: bool,
) -> Planner[dict[str, TopicImage | MetadataError]]:
    """See `Controller.create_topics`."""
    _check_total((partitions_of(topic, config) for topic in topics), "partitions")
    chosen = {topic.name: new_id() for topic in topics}
    take_once = _once(take_quota)

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[dict[str, TopicImage | MetadataError]]:
        results: dict[str, TopicImage | MetadataError] = {}
        compares: list[Compare] = []
        operations: list[Operation] = []
        here = CollisionIndex()
        time_slice = TimeSlice()
        for topic in topics:
            await time_slice.maybe_yield()
            try:
                replicas, configs = await plan_topic(topic, image, (collisions, here), config)
                topic_id = chosen[topic.name]
                states, puts = begin(topic_id, replicas, image)
                take_once(topic.name, len(replicas))
            except MetadataError as error:
                results[topic.name] = kept(error)
                continue
            here.add(topic.name)
            results[topic.name] = TopicImage(topic.name, topic_id, states, configs)
            compares.append(Compare(keys.topic(topic.name), 0))
            operations.append(Put(keys.topic(topic.name), keys.encode_topic(topic_id, replicas, configs)))
            operations += puts
        return compares, [] if validate_only else operations, results

    return plan


def deletion(
    topic_ids: Sequence[UUID], config: BrokerConfig, take_quota: TakeQuota | None
) -> Planner[dict[UUID, MetadataError | None]]:
    """See `Controller.delete_topics`."""
    if not config.delete_topic_enable:
        raise TopicDeletionDisabledError("Topic deletion is disabled.")
    take_once = _once(take_quota)

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[dict[UUID, MetadataError | None]]:
        results: dict[UUID, MetadataError | None] = {}
        compares: list[Compare] = []
        operations: list[Operation] = []
        time_slice = TimeSlice()
        for topic_id in topic_ids:
            await time_slice.maybe_yield()
            topic = image.topic_by_id(topic_id)
            results[topic_id] = None
            if topic is None:
                results[topic_id] = UnknownTopicIdError("This server does not host this topic ID.")
                continue
            try:
                take_once(topic.name, len(topic.partitions))
            except MetadataError as error:
                results[topic_id] = kept(error)
                continue
            compares.append(Compare(keys.topic(topic.name), topic.revision))
            operations.append(Delete(keys.topic(topic.name)))
            operations.append(DeletePrefix(keys.partitions_of(topic_id)))
        return compares, operations, results

    return plan


def growth(
    asked: Sequence[NewPartitions], take_quota: TakeQuota | None, *, validate_only: bool
) -> Planner[dict[str, MetadataError | None]]:
    """See `Controller.create_partitions`."""
    take_once = _once(take_quota)

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[dict[str, MetadataError | None]]:
        _check_total((added_partitions(one, image) for one in asked), "additional partitions")
        results: dict[str, MetadataError | None] = {}
        compares: list[Compare] = []
        operations: list[Operation] = []
        time_slice = TimeSlice()
        for one in asked:
            await time_slice.maybe_yield()
            try:
                topic = image.topic(one.name)
                if topic is None:
                    raise UnknownTopicError
                added = await plan_partitions(one, topic, image)
                _, puts = begin(topic.topic_id, added, image, first=len(topic.partitions))
                take_once(one.name, len(added))
            except MetadataError as error:
                results[one.name] = kept(error)
                continue
            results[one.name] = None
            replicas = [*(state.replicas for state in topic.partitions), *added]
            value = keys.encode_topic(topic.topic_id, replicas, topic.configs)
            compares.append(Compare(keys.topic(one.name), topic.revision))
            operations.append(Put(keys.topic(one.name), value))
            operations += puts
        return compares, [] if validate_only else operations, results

    return plan


def _once(take_quota: TakeQuota | None) -> TakeQuota:
    """Charges each topic once, although a conflict in the store has a change planned again."""
    charged: set[str] = set()

    def take(topic: str, partitions: int) -> None:
        if take_quota is not None and topic not in charged:
            take_quota(topic, partitions)
            charged.add(topic)

    return take


def _check_total(new_partitions: Iterable[int], what: str) -> None:
    """Called before any partition is placed: a request may ask for billions of them."""
    if sum(new_partitions) > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolationError(f"Excessively large number of {what} per request.")
