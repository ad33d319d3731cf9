"""Which changes of topics may be asked for, and what they do to the metadata. Pure functions on an image; Kafka's
counterpart is org.apache.kafka.controller.ReplicationControlManager, whose messages clients see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID
from zlib import crc32

from ottla.metadata import keys
from ottla.metadata.changes.config_changes import check_topic_configs
from ottla.metadata.changes.placement import check_assignment, place_replicas
from ottla.metadata.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    TopicAlreadyExistsError,
)
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.metadata.image_delta import initial_state
from ottla.metadata.topic_names import CollisionIndex, check_topic_name
from ottla.metastore.store import Put
from ottla.settings.config import BrokerConfig
from ottla.settings.mirrored import MIRROR_SETTING, Mirrored, Mirroring

#: Stands for the broker's default in a count of partitions or replicas.
USE_DEFAULT: Final = -1

#: Kafka keeps its own log under this name; nobody may create a topic with it.
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that is asked for. `assignments` maps each partition to its replicas, instead of the counts;
    `repeated_partition` is one for which there were several. `mirror_of` is the id of another cluster's topic that it
    copies."""

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)
    mirror_of: UUID | None = None
    repeated_partition: int | None = None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic that should have `count` partitions; `assignments` lists the replicas of those to be added. A mirror gets
    more only when its source has more."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None
    from_source: bool = False


def partitions_of(topic: NewTopic, config: BrokerConfig) -> int:
    """How many partitions a topic to be created asks for, 0 if that is not a number of partitions."""
    if topic.assignments:
        return len(topic.assignments)
    return config.num_partitions if topic.num_partitions == USE_DEFAULT else max(0, topic.num_partitions)


def added_partitions(asked: NewPartitions, image: MetadataImage) -> int:
    """How many partitions would be added to a topic, 0 if it does not exist or has as many already."""
    topic = image.topic(asked.name)
    return 0 if topic is None else max(0, asked.count - len(topic.partitions))


async def plan_topic(
    topic: NewTopic, image: MetadataImage, collisions: Sequence[CollisionIndex], config: BrokerConfig
) -> tuple[list[tuple[int, ...]], dict[str, str]]:
    """The replicas of each partition and the configs of a topic to be created; raises MetadataError."""
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise InvalidRequestError(f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.")
    check_topic_name(topic.name)
    if topic.name in image.topics:
        raise TopicAlreadyExistsError(f"Topic '{topic.name}' already exists.")
    other = next(filter(None, (index.find(topic.name) for index in collisions)), None)
    if other is not None:
        raise InvalidTopicError(f"Topic '{topic.name}' collides with existing topic: {other}")
    configs = _new_configs(topic.configs, config)
    if topic.mirror_of is not None:
        configs[MIRROR_SETTING] = str(Mirrored(Mirroring.FOLLOWING, topic.mirror_of))
    if topic.assignments:
        return _manual_placement(topic, image), configs
    return await _automatic_placement(topic, image, config), configs


async def plan_partitions(asked: NewPartitions, topic: TopicImage, image: MetadataImage) -> list[tuple[int, ...]]:
    """The replicas of the partitions to be added to a topic; raises MetadataError."""
    existing = len(topic.partitions)
    if topic.is_mirrored and not asked.from_source:
        raise InvalidRequestError(f"The topic {topic.name} is a mirror: it has as many partitions as its source.")
    if asked.count == existing:
        raise InvalidPartitionsError(f"Topic already has {existing} partition(s).")
    if asked.count < existing:
        raise InvalidPartitionsError(
            f"The topic {topic.name} currently has {existing} partition(s); {asked.count} would not be an increase."
        )
    added = asked.count - existing
    replication_factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        seed = crc32(topic.name.encode()) + existing
        brokers = tuple(image.brokers.values())
        return await place_replicas(brokers, added, replication_factor, seed=seed, existing=topic.partitions)
    if len(asked.assignments) != added:
        raise InvalidReplicaAssignmentError(
            f"Attempted to add {added} additional partition(s), but only {len(asked.assignments)} assignment(s) "
            "were specified."
        )
    known = tuple(image.brokers)
    return [check_assignment(replicas, known, replication_factor) for replicas in asked.assignments]


def begin(
    topic_id: UUID, replicas: Sequence[tuple[int, ...]], image: MetadataImage, *, first: int = 0
) -> tuple[tuple[PartitionState, ...], list[Put]]:
    """The states in which partitions from number `first` on begin, and what has to be written besides the topic.

    Only the living are in sync, and the first of them leads. If all are alive, nothing has to be written.
    """
    live = {broker.node_id for broker in image.live_brokers()}
    if len(live) == len(image.brokers):
        return tuple(initial_state(one, image.starts) for one in replicas), []
    states: list[PartitionState] = []
    puts: list[Put] = []
    for number, one in enumerate(replicas, first):
        isr = tuple(broker for broker in one if broker in live)
        if not isr:
            raise InvalidReplicaAssignmentError(
                f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
                "controlled shutdown."
            )
        if isr == one:
            states.append(initial_state(one, image.starts))
        else:
            states.append(PartitionState(isr[0], one, isr))
            puts.append(Put(keys.partition(topic_id, number), keys.encode_partition(states[-1], image.starts)))
    return tuple(states), puts


def _new_configs(asked: Mapping[str, str | None], config: BrokerConfig) -> dict[str, str]:
    absent = [name for name, value in asked.items() if value is None]
    if absent:
        raise InvalidConfigError(f"Null value not supported for topic configs: {','.join(absent)}")
    configs = {name: value for name, value in asked.items() if value is not None}
    if MIRROR_SETTING in configs:
        raise InvalidConfigError(f"{MIRROR_SETTING} is set by `ottla mirror` alone.")
    check_topic_configs(configs, config)
    return configs


def _manual_placement(topic: NewTopic, image: MetadataImage) -> list[tuple[int, ...]]:
    if topic.replication_factor != USE_DEFAULT:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.num_partitions != USE_DEFAULT:
        raise InvalidRequestError("A manual partition assignment was specified, but numPartitions was not set to -1.")
    if topic.repeated_partition is not None:
        raise InvalidReplicaAssignmentError(
            f"Found multiple manual partition assignments for partition {topic.repeated_partition}"
        )
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
    known = tuple(image.brokers)
    placed: list[tuple[int, ...]] = []
    for number in range(len(topic.assignments)):
        expected = len(placed[0]) if placed else None
        placed.append(check_assignment(topic.assignments[number], known, expected))
    return placed


async def _automatic_placement(topic: NewTopic, image: MetadataImage, config: BrokerConfig) -> list[tuple[int, ...]]:
    if topic.replication_factor != USE_DEFAULT and topic.replication_factor <= 0:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0, or -1 to use the default value.")
    if topic.num_partitions != USE_DEFAULT and topic.num_partitions <= 0:
        raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
    partitions = config.num_partitions if topic.num_partitions == USE_DEFAULT else topic.num_partitions
    replicas = topic.replication_factor
    if replicas == USE_DEFAULT:
        replicas = config.default_replication_factor
    brokers = tuple(image.brokers.values())
    return await place_replicas(brokers, partitions, replicas, seed=crc32(topic.name.encode()))
