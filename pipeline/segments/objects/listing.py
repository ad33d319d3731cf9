"""Finding the topics of a subscription in an object store, and their manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.pipeline.client import TopicPartition
from ottla.pipeline.errors import StoreError, TopicError
from ottla.tiers.errors import ObjectMissingError
from ottla.tiers.listing import find_clusters, find_topics, list_manifests
from ottla.tiers.manifest import Manifest
from ottla.tiers.offload import in_a_thread
from ottla.tiers.parallel import in_parallel

if TYPE_CHECKING:
    from ottla.pipeline.segments.options import SegmentOptions
    from ottla.tiers.names import TopicNames
    from ottla.tiers.object_store import ObjectStore

__all__ = ["StoredPartition", "find_partitions"]


class StoredPartition(NamedTuple):
    """What an object store has of a partition."""

    names: TopicNames
    manifest: Manifest


async def find_partitions(store: ObjectStore, options: SegmentOptions) -> dict[TopicPartition, StoredPartition]:
    """The subscribed partitions of which the store has something, by their whole names.

    Raises TopicError for topics that are not there, StoreError where it is not clear which topic is meant, and
    TierError if the store does not answer, or what it answers is damaged.
    """
    topics = await _find_topics(store, options)
    assigned = options.source.subscription.assigned
    wanted = [
        (names, TopicPartition(topic, partition))
        for topic, names in topics.items()
        for partition in (await list_manifests(store, names)).partitions
        if not assigned or TopicPartition(topic, partition) in assigned
    ]

    async def fetch(each: tuple[TopicNames, TopicPartition]) -> Manifest:
        names, part = each
        content = (await store.get(names.manifest(part.partition))).content
        return await in_a_thread(Manifest.from_bytes, content, names.topic_id, part.partition)

    manifests = await in_parallel(fetch, wanted)
    found = {part: StoredPartition(names, manifest) for (names, part), manifest in zip(wanted, manifests, strict=True)}
    held = {part.topic for part in found}
    if empty := [topic for topic in topics if topic not in held and not assigned]:
        raise TopicError(f"{options.path} has objects of topic {empty[0]!r}, but no manifest yet that names any.")
    if absent := set(assigned).difference(found):
        raise TopicError(f"{options.path} has nothing of partition {min(absent)}, which option assign names.")
    return found


async def _find_topics(store: ObjectStore, options: SegmentOptions) -> dict[str, TopicNames]:
    subscription = options.source.subscription
    named = dict.fromkeys((*subscription.topics, *(part.topic for part in subscription.assigned)))
    clusters = await find_clusters(store) if options.cluster_id is None else [options.cluster_id]
    found: dict[str, list[TopicNames]] = {}
    for cluster in clusters:
        for topic in named or [None]:
            async for names in find_topics(store, cluster, topic):
                if not named and not subscription.includes(names.topic):
                    continue
                if await _is_meant(store, names, options):
                    found.setdefault(topic or names.topic, []).append(names)
    if missing := [topic for topic in named if topic not in found]:
        raise TopicError(
            f"There is no topic {missing[0]!r} in {options.path}: check the name, the address, and whether anything of "
            "the topic was copied there (`ottla tier status --offline --remote-url …`)."
        )
    if not found:
        raise TopicError(f"No topic in {options.path} matches subscribePattern {subscription.pattern!r}.")
    for topic, candidates in found.items():
        _require_one(topic, candidates, options)
    return {topic: candidates[0] for topic, candidates in found.items()}


async def _is_meant(store: ObjectStore, names: TopicNames, options: SegmentOptions) -> bool:
    """Whether it is one of the ids that are asked for, and not being deleted."""
    if options.topic_ids and _id_of(names) not in options.topic_ids:
        return False
    try:
        await store.get(names.deletion_note)
    except ObjectMissingError:
        return True
    return False


def _require_one(topic: str, candidates: list[TopicNames], options: SegmentOptions) -> None:
    clusters = sorted({names.cluster_id for names in candidates})
    if len(clusters) > 1:
        raise StoreError(
            f"{options.path} has the topic {topic!r} of several clusters: set clusterId to one of "
            f"{', '.join(clusters)}."
        )
    if len(candidates) > 1:
        ids = ", ".join(sorted(map(_id_of, candidates)))
        raise StoreError(
            f"{options.path} has several topics named {topic!r}, of which all but one were deleted while no broker "
            f"could remove their objects: set topicId to one of {ids}. `ottla topic describe` shows the present "
            "one's."
        )


def _id_of(names: TopicNames) -> str:
    """A topic's id as Kafka's tools show it."""
    return names.folder.rstrip("/").rpartition(".")[2]
