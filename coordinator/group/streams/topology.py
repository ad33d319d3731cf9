"""The topics that a streams group's topology needs: how many partitions the internal ones have, and which are missing.

Kafka's counterparts are InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer and ChangelogTopics; the
messages are theirs. Everything here is computed from the topology and the cluster's topics, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from ottla.coordinator.errors import StreamsInvalidTopologyError
from ottla.kproto.internal_records import streams_group as schema

PartitionCount = Callable[[str], "int | None"]
"""How many partitions a topic has; None where there is no such topic."""

_SHOWN: Final = 3


class StreamsStatus(IntEnum):
    """Statuses that a member gets beside its assignment; the numbers are those of StreamsGroupHeartbeat."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class HeartbeatStatus(NamedTuple):
    """A status in a heartbeat's answer, and its message."""

    status: StreamsStatus
    detail: str


class Topology:
    """The subtopologies that all members of a group share, and the epoch at which they were given."""

    __slots__ = ("epoch", "required_topics", "source_topics", "subtopologies")

    def __init__(self, epoch: int, subtopologies: Iterable[schema.Subtopology]) -> None:
        """Raises StreamsInvalidTopologyError."""
        self.epoch = epoch
        self.subtopologies: dict[str, schema.Subtopology] = {}
        self.source_topics: dict[str, str] = {}
        """The subtopology that reads a topic, repartition topics included."""
        required: set[str] = set()
        for subtopology in subtopologies:
            subtopology_id = subtopology.subtopology_id
            if subtopology_id in self.subtopologies:
                raise StreamsInvalidTopologyError(f"Subtopology {subtopology_id} is defined twice.")
            self.subtopologies[subtopology_id] = subtopology
            self.source_topics.update(dict.fromkeys(_sources(subtopology), subtopology_id))
            required.update(_sources(subtopology))
            required.update(topic.name for topic in subtopology.state_changelog_topics)
        #: Every topic that has to exist.
        self.required_topics = frozenset(required)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return (self.epoch, self.subtopologies) == (other.epoch, other.subtopologies)

    __hash__ = None  # type: ignore[assignment]


class InternalTopic(NamedTuple):
    """A topic that the broker creates for the application. A replication factor of 0 means the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    """A subtopology, with the numbers of partitions of its internal topics decided."""

    task_count: int
    source_topics: frozenset[str]
    repartition_sinks: frozenset[str]
    repartition_sources: Mapping[str, InternalTopic]
    changelogs: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state that a standby can keep."""
        return bool(self.changelogs)


class ConfiguredTopology(NamedTuple):
    """A topology with its internal topics decided. `problem` says why it cannot run yet; None if it can."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    to_create: Mapping[str, InternalTopic]
    problem: HeartbeatStatus | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _NotReadyError(Exception):
    """The topology cannot run with the topics that there are now."""

    def __init__(self, status: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = HeartbeatStatus(status, detail)


def configure(topology: Topology, partition_count: PartitionCount) -> ConfiguredTopology:
    """Decide on the internal topics. Raises StreamsInvalidTopologyError for a topology that can never run."""
    try:
        _check_sources(topology, partition_count)
        decided = _decide(topology, partition_count)
        configured = {
            subtopology_id: _configured(topology.subtopologies[subtopology_id], partition_count, decided)
            for subtopology_id in sorted(topology.subtopologies)
        }
        missing = _missing(configured, partition_count)
    except _NotReadyError as error:
        return ConfiguredTopology(topology.epoch, {}, {}, error.status)
    problem = None
    if missing:
        problem = HeartbeatStatus(
            StreamsStatus.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_summary(missing)}"
        )
    return ConfiguredTopology(topology.epoch, configured, missing, problem)


def _check_sources(topology: Topology, partition_count: PartitionCount) -> None:
    missing = sorted(
        {
            name
            for subtopology in topology.subtopologies.values()
            for name in subtopology.source_topics
            if partition_count(name) is None
        }
    )
    if missing:
        raise _NotReadyError(StreamsStatus.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")


def _decide(topology: Topology, partition_count: PartitionCount) -> dict[str, int]:
    """How many partitions each internal topic should have."""
    subtopologies = list(topology.subtopologies.values())
    decided = _repartition_counts(subtopologies, partition_count)
    fixed = {topic.name for each in subtopologies for topic in each.repartition_source_topics if topic.partitions}
    flexible = {topic.name for each in subtopologies for topic in each.repartition_source_topics} - fixed
    for subtopology in subtopologies:
        for group in subtopology.copartition_groups:
            names = _copartitioned(subtopology, group)
            decided |= _enforce(names, fixed, flexible, partial(_known, partition_count, decided))
    for subtopology in subtopologies:
        counts = [_known(partition_count, decided, name) for name in _sources(subtopology)]
        if not counts:
            raise StreamsInvalidTopologyError(f"No source topics found for subtopology {subtopology.subtopology_id}")
        decided |= {topic.name: max(counts) for topic in subtopology.state_changelog_topics}
    return decided


def _repartition_counts(subtopologies: list[schema.Subtopology], partition_count: PartitionCount) -> dict[str, int]:
    """A repartition topic without a given number of partitions has as many as the largest source of the subtopology
    that writes into it.
    """
    sources = [topic for each in subtopologies for topic in each.repartition_source_topics]
    counts = {topic.name: topic.partitions for topic in sources if topic.partitions}
    open_sinks = [(each, sink) for each in subtopologies for sink in each.repartition_sink_topics]
    while True:
        left = []
        for subtopology, sink in open_sinks:
            if sink in counts:
                continue
            count = _largest_source(subtopology, counts, partition_count)
            if count is None:
                left.append((subtopology, sink))
            else:
                counts[sink] = count
        if not left:
            break
        if len(left) == len(open_sinks):
            raise StreamsInvalidTopologyError(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                "topology that cannot be resolved."
            )
        open_sinks = left
    if any(topic.name not in counts for topic in sources):
        raise StreamsInvalidTopologyError(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
            "is never used as a sink topic."
        )
    return counts


def _largest_source(
    subtopology: schema.Subtopology, counts: Mapping[str, int], partition_count: PartitionCount
) -> int | None:
    found = [counts.get(topic.name) for topic in subtopology.repartition_source_topics]
    found += [partition_count(name) for name in subtopology.source_topics]
    return max((count for count in found if count is not None), default=None)


def _copartitioned(subtopology: schema.Subtopology, group: schema.CopartitionGroup) -> frozenset[str]:
    """The topics of a copartition group, which names them by their places in the lists of the subtopology."""
    names = subtopology.source_topics
    repartition = [topic.name for topic in subtopology.repartition_source_topics]
    try:
        return frozenset(
            [_at(names, place) for place in group.source_topics]
            + [_at(repartition, place) for place in group.repartition_source_topics]
        )
    except IndexError:
        raise StreamsInvalidTopologyError(
            f"A copartition group of subtopology {subtopology.subtopology_id} names a topic that is not there."
        ) from None


def _at(names: list[str], place: int) -> str:
    if place < 0:
        raise IndexError(place)
    return names[place]


def _enforce(names: frozenset[str], fixed: set[str], flexible: set[str], count: Callable[[str], int]) -> dict[str, int]:
    """The partitions of a copartition group's repartition topics: as many as its other topics have."""
    if not names:
        return {}
    repartition = {name: count(name) for name in sorted(names) if name in fixed or name in flexible}
    others = {name: count(name) for name in sorted(names) if name not in repartition}
    if others:
        wanted = _same(others, others)
    elif fixed:
        wanted = _same({name: count(name) for name in sorted(fixed)}, repartition)
    else:
        wanted = max(repartition.values())
    for name, found in repartition.items():
        if name in fixed and found != wanted:
            raise _NotReadyError(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{found}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{wanted}] of the source topic.",
            )
    return dict.fromkeys(repartition, wanted)


def _same(counts: Mapping[str, int], named: Mapping[str, int]) -> int:
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name}={count}" for name, count in named.items())
        raise _NotReadyError(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return next(iter(counts.values()))


def _configured(
    subtopology: schema.Subtopology, partition_count: PartitionCount, decided: Mapping[str, int]
) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        task_count=max(_known(partition_count, decided, name) for name in _sources(subtopology)),
        source_topics=frozenset(subtopology.source_topics),
        repartition_sinks=frozenset(subtopology.repartition_sink_topics),
        repartition_sources=_internal_topics(subtopology.repartition_source_topics, decided),
        changelogs=_internal_topics(subtopology.state_changelog_topics, decided),
    )


def _internal_topics(topics: Iterable[schema.TopicInfo], decided: Mapping[str, int]) -> dict[str, InternalTopic]:
    found = {}
    for topic in topics:
        partitions = topic.partitions or decided[topic.name]
        if partitions < 1:
            raise StreamsInvalidTopologyError(f"Topic {topic.name} cannot have {partitions} partitions.")
        configs = {config.key: config.value for config in topic.topic_configs}
        found[topic.name] = InternalTopic(topic.name, partitions, topic.replication_factor, configs)
    return found


def _missing(
    configured: Mapping[str, ConfiguredSubtopology], partition_count: PartitionCount
) -> dict[str, InternalTopic]:
    wanted: dict[str, InternalTopic] = {}
    for subtopology in configured.values():
        wanted |= {**subtopology.repartition_sources, **subtopology.changelogs}
    missing = {}
    for name in sorted(wanted):
        found, expected = partition_count(name), wanted[name].partitions
        if found is None:
            missing[name] = wanted[name]
        elif found != expected:
            raise _NotReadyError(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected}, found {found}",
            )
    return missing


def _known(partition_count: PartitionCount, decided: Mapping[str, int], name: str) -> int:
    count = partition_count(name)
    if count is None:
        count = decided.get(name)
    if count is None:
        raise StreamsInvalidTopologyError(f"Number of partitions is not set for topic: {name}")
    return count


def _sources(subtopology: schema.Subtopology) -> Iterator[str]:
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def _summary(names: Iterable[str]) -> str:
    """The first of the names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} additional topics" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
