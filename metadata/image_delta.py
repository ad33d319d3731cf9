"""From one image to the next: what a transaction of the store means for topics, brokers, configs and the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count, repeat
from typing import Any, Final
from uuid import UUID

from ottla.metadata import keys
from ottla.metadata.image import (
    NO_LEADER,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionChange,
    PartitionState,
    TopicImage,
)
from ottla.metadata.persistent_map import PersistentMap
from ottla.metastore.store import KeyValue

_OF_TOPICS: Final = (keys.TOPICS, keys.PARTITIONS)


def evolve(before: MetadataImage, revision: int, puts: Sequence[KeyValue], deletes: Sequence[str]) -> MetadataDelta:
    """Apply one transaction; equal to building the image again from all keys, and proportional to the change."""
    after, topics = _next_image(before, revision, puts, deletes)
    return describe(before, after, topics, _touched_configs(puts, deletes))


def image_of(revision: int, entries: Sequence[KeyValue]) -> MetadataImage:
    """The image of everything that the store has."""
    return _next_image(MetadataImage(), revision, entries, ())[0]


def _next_image(
    before: MetadataImage, revision: int, puts: Sequence[KeyValue], deletes: Sequence[str]
) -> tuple[MetadataImage, Sequence[str]]:
    """The image after a transaction, and the topics in which it may differ."""
    topics = [entry for entry in puts if entry.key.startswith(keys.TOPICS)]
    partitions = [entry for entry in puts if entry.key.startswith(keys.PARTITIONS)]
    # Looked through once for each mapping, so without the topics, which are the most.
    rest = _evolve_rest(before, [entry for entry in puts if not entry.key.startswith(_OF_TOPICS)], deletes)
    change = _Evolution(before, rest.starts)
    # The topics come first: a partition's state may be set in the transaction that makes its topic.
    for key in deletes:
        if key.startswith(keys.TOPICS):
            change.delete_topic(key.removeprefix(keys.TOPICS))
    for entry in topics:
        change.put_topic(entry)
    for entry in partitions:
        change.put_partition(entry)
    by_name, topics_by_id = change.finish()
    return replace(rest, topics=by_name, topics_by_id=topics_by_id, revision=revision), change.touched


def describe(
    before: MetadataImage, after: MetadataImage, topics: Iterable[str], configs: Sequence[ConfigResource]
) -> MetadataDelta:
    """Name what differs between two images, looking only at the given topics and configs."""
    deleted: list[TopicImage] = []
    created: list[TopicImage] = []
    reconfigured: list[TopicImage] = []
    partitions: list[PartitionChange] = []
    for name in topics:
        old, new = before.topics.get(name), after.topics.get(name)
        if old is not None and (new is None or new.topic_id != old.topic_id):
            deleted.append(old)
            old = None
        if new is None or new is old:
            continue
        if old is None:
            created.append(new)
        elif new.configs != old.configs:
            reconfigured.append(new)
        partitions += _changed_partitions(old, new)
    return MetadataDelta(
        before=before,
        after=after,
        deleted_topics=deleted,
        created_topics=created,
        changed_partitions=partitions,
        reconfigured_topics=reconfigured,
        changed_configs=[it for it in configs if before.resource_configs(it) != after.resource_configs(it)],
        changed_brokers=[
            node
            for node in sorted(before.brokers.keys() | after.brokers.keys())
            if before.brokers.get(node) != after.brokers.get(node)
        ],
        features_changed=before.features != after.features,
        quotas_changed=before.quotas != after.quotas,
    )


def _changed_partitions(old: TopicImage | None, new: TopicImage) -> Iterable[PartitionChange]:
    if old is None:
        return map(PartitionChange, repeat(new), count(), repeat(None), new.partitions)
    return _differing_partitions(old.partitions, new)


def _differing_partitions(known: Sequence[PartitionState], new: TopicImage) -> Iterable[PartitionChange]:
    for number, state in enumerate(new.partitions):
        earlier = known[number] if number < len(known) else None
        if earlier is not state and earlier != state:
            yield PartitionChange(new, number, earlier, state)


def initial_state(replicas: tuple[int, ...], starts: Mapping[int, int]) -> PartitionState:
    """The state of a new partition; all partitions that begin alike share one object."""
    return _initial_state(replicas, starts.get(replicas[0], 0))


@lru_cache(maxsize=1024)
def _initial_state(replicas: tuple[int, ...], starts_of_leader: int) -> PartitionState:
    return PartitionState.initial(replicas).after_starts(starts_of_leader)


_after_starts = lru_cache(maxsize=1024)(PartitionState.after_starts)


class _Evolution:
    """The topics of the next image, while it is being made. `starts` are those of the next image."""

    def __init__(self, before: MetadataImage, starts: Mapping[int, int]) -> None:
        self._before = before
        self._starts = starts
        self._changed: dict[str, TopicImage | None] = {}
        #: Of changed topics: the states of their partitions while some are being replaced.
        self._states: dict[str, list[PartitionState]] = {}
        self._names: dict[UUID, str] = {}
        if starts != before.starts:
            self._begin_epochs()

    def _begin_epochs(self) -> None:
        """Brokers have started again: what they lead, they lead in new epochs."""
        known = self._before.starts
        more = {node: count - known.get(node, 0) for node, count in self._starts.items()}
        for name, topic in self._before.topics.items():
            states = tuple(_after_starts(state, more.get(state.leader, 0)) for state in topic.partitions)
            if states != topic.partitions:
                self._changed[name] = topic._replace(partitions=states)

    @property
    def touched(self) -> Sequence[str]:
        return tuple(self._changed)

    def delete_topic(self, name: str) -> None:
        if name in self._before.topics:
            self._changed[name] = None

    def put_topic(self, entry: KeyValue) -> None:
        name = entry.key.removeprefix(keys.TOPICS)
        topic_id, replicas, configs = keys.decode_topic(entry.value)
        old = self._changed.get(name, self._before.topics.get(name))
        states = old.partitions if old is not None and old.topic_id == topic_id else ()
        added = (initial_state(one, self._starts) for one in replicas[len(states) :])
        self._changed[name] = TopicImage(name, topic_id, (*states, *added), configs, entry.mod_revision)
        self._names[topic_id] = name

    def put_partition(self, entry: KeyValue) -> None:
        topic_id, number = keys.parse_partition(entry.key)
        name = self._names.get(topic_id)
        if name is None:
            known = self._before.topics_by_id.get(topic_id)
            if known is None:
                return
            name = self._names[topic_id] = known.name
        topic = self._changed.get(name, self._before.topics.get(name))
        if topic is None or topic.topic_id != topic_id or number >= len(topic.partitions):
            return
        states = self._states.get(name)
        if states is None:
            self._changed[name] = topic
            states = self._states[name] = list(topic.partitions)
        states[number] = keys.decode_partition(entry.value, self._starts)

    def finish(self) -> tuple[PersistentMap[str, TopicImage], PersistentMap[UUID, TopicImage]]:
        """The topics of the next image by name and by id."""
        before = self._before
        for name, states in self._states.items():
            topic = self._changed[name]
            assert topic is not None
            self._changed[name] = topic._replace(partitions=tuple(states))
        present = {name: topic for name, topic in self._changed.items() if topic is not None}
        absent = tuple(name for name, topic in self._changed.items() if topic is None)
        old = (before.topics.get(name) for name in self._changed)
        return before.topics.update(present, absent), before.topics_by_id.update(
            {topic.topic_id: topic for topic in present.values()},
            tuple(topic.topic_id for topic in old if topic is not None),
        )


#: The image's plain mappings: the prefix of their keys, and what a key and its value stand for.
_MAPPINGS: Final[Mapping[str, tuple[str, Callable[[str], Any], Callable[[KeyValue], Any]]]] = {
    "brokers": (
        keys.BROKERS,
        lambda key: int(key.removeprefix(keys.BROKERS)),
        lambda entry: keys.decode_broker(entry.key, entry.value, entry.mod_revision),
    ),
    "sessions": (
        keys.ALIVE,
        lambda key: int(key.removeprefix(keys.ALIVE)),
        lambda entry: keys.decode_session(entry.value),
    ),
    "starts": (
        keys.STARTS,
        lambda key: int(key.removeprefix(keys.STARTS)),
        lambda entry: keys.decode(entry.value),
    ),
    "configs": (keys.CONFIGS, keys.parse_configs, lambda entry: keys.decode(entry.value)),
    "features": (
        keys.FEATURES,
        lambda key: key.removeprefix(keys.FEATURES),
        lambda entry: keys.decode(entry.value),
    ),
    "quotas": (keys.QUOTAS, keys.parse_quota, lambda entry: keys.decode(entry.value)),
    "delegation_tokens": (
        keys.DELEGATION_TOKENS,
        lambda key: key.removeprefix(keys.DELEGATION_TOKENS),
        lambda entry: keys.decode_delegation_token(entry.key, entry.value),
    ),
    "acls": (keys.ACLS, keys.parse_acl, lambda entry: None),
    "scram_credentials": (keys.SCRAM, keys.parse_scram, lambda entry: keys.decode_scram(entry.value)),
}


def _evolve_rest(image: MetadataImage, puts: Sequence[KeyValue], deletes: Sequence[str]) -> MetadataImage:
    changed: dict[str, Any] = {}
    for name, (prefix, parse, decode) in _MAPPINGS.items():
        gone = {parse(key) for key in deletes if key.startswith(prefix)}
        come = {parse(entry.key): decode(entry) for entry in puts if entry.key.startswith(prefix)}
        if gone or come:
            kept = {key: value for key, value in getattr(image, name).items() if key not in gone}
            changed[name] = kept | come
    changed.update(("cluster_id", keys.decode(entry.value)) for entry in puts if entry.key == keys.CLUSTER_ID)
    if keys.CONTROLLER in deletes:
        changed["controller_id"] = NO_LEADER
    changed.update(("controller_id", keys.decode(entry.value)) for entry in puts if entry.key == keys.CONTROLLER)
    if "brokers" in changed or "sessions" in changed:
        sessions = changed.get("sessions", image.sessions)
        brokers = changed.get("brokers", image.brokers)
        changed["brokers"] = {id_: broker._replace(fenced=id_ not in sessions) for id_, broker in brokers.items()}
    return replace(image, **changed)


def _touched_configs(puts: Sequence[KeyValue], deletes: Sequence[str]) -> list[ConfigResource]:
    touched = (*(entry.key for entry in puts), *deletes)
    return [keys.parse_configs(key) for key in touched if key.startswith(keys.CONFIGS)]
