"""Creates, extends and configures the mirror's topics as the source's are. Done by the controller."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.changes.topic_changes import NewPartitions, NewTopic
from ottla.metadata.image import ConfigResource, MetadataImage, ResourceType, TopicImage
from ottla.metastore.errors import MetadataError, PolicyViolationError
from ottla.runtime.time_slice import TimeSlice
from ottla.settings.config import TOPIC_SETTINGS
from ottla.settings.mirrored import Mirroring

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.kproto.messages.topics.metadata import MetadataResponse, MetadataResponseTopic
    from ottla.metadata.controller import Controller
    from ottla.server.mirror.names import NamePattern
    from ottla.server.mirror.source import Source

logger = logging.getLogger(__name__)

T = TypeVar("T", NewTopic, NewPartitions)
R = TypeVar("R")

_TOPICS_A_REQUEST: Final = 100
_TOPICS_A_CREATION: Final = 20
_PARTITIONS_A_CREATION: Final = 2000
_SET_ON_THE_TOPIC: Final = 1
"""The source of a config that DescribeConfigs tells (DYNAMIC_TOPIC_CONFIG)."""

_LOCAL: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "remote.",
    "local.retention.",
    "ottla.mirror",
)
"""Settings that depend on a cluster's own replicas and disks: not copied."""


class Plan(NamedTuple):
    """The changes that make the mirror like the source, and the reasons for which topics cannot be mirrored."""

    create: Sequence[NewTopic]
    extend: Sequence[NewPartitions]
    configure: Mapping[str, Sequence[ConfigChange]]
    problems: Mapping[str, str]


async def follow_topics(
    controller: Controller, source: Source, found: MetadataResponse, names: NamePattern
) -> Mapping[str, str]:
    """Make the mirror's topics as the source's are; returns why some are not mirrored. Raises a ClientError or a
    MetadataError."""
    wanted = [topic for topic in found.topics if _is_meant(topic, names)]
    configs = await _configs(source, [topic.name or "" for topic in wanted])
    plan = await plan_topics(controller.image, wanted, configs, {topic.topic_id for topic in found.topics})
    problems = dict(plan.problems)
    for some in in_batches(plan.create):
        _note_made(problems, await _each(controller.create_topics, some))
    for one in plan.extend:
        _note(problems, "has fewer partitions here", await _each(controller.create_partitions, [one]))
    for name, changes in plan.configure.items():
        refused = await controller.alter_configs({ConfigResource(ResourceType.TOPIC, name): changes})
        _note(problems, "has other settings here", {it.name: error for it, error in refused.items()})
    return problems


def in_batches(topics: Sequence[NewTopic]) -> Iterator[list[NewTopic]]:
    """A few topics at a time, and few of those with many partitions."""
    some: list[NewTopic] = []
    for topic in topics:
        if some and (
            len(some) == _TOPICS_A_CREATION or sum(it.num_partitions for it in (*some, topic)) > _PARTITIONS_A_CREATION
        ):
            yield some
            some = []
        some.append(topic)
    if some:
        yield some


async def _each(
    make: Callable[[Sequence[T]], Awaitable[Mapping[str, R | MetadataError]]], asked: Sequence[T]
) -> Mapping[str, R | MetadataError]:
    """The outcome for each topic; a refusal of the whole request counts for each."""
    try:
        return await make(asked)
    except PolicyViolationError as error:
        return {it.name: error for it in asked}


def _note_made(problems: dict[str, str], results: Mapping[str, TopicImage | MetadataError]) -> None:
    for name, result in results.items():
        if isinstance(result, MetadataError):
            problems[name] = f"cannot be created here: {result}"
        else:
            keys = {"topic": name, "partitions": len(result.partitions)}
            logger.info("topic %s is mirrored from now on", name, extra=keys)


def _note(problems: dict[str, str], what: str, results: Mapping[str, MetadataError | None]) -> None:
    problems.update((name, f"{what}: {error}") for name, error in results.items() if error is not None)


def _is_meant(topic: MetadataResponseTopic, names: NamePattern) -> bool:
    is_there = topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
    return is_there and not topic.is_internal and topic.name is not None and names.matches(topic.name)


async def plan_topics(
    image: MetadataImage,
    wanted: Iterable[MetadataResponseTopic],
    configs: Mapping[str, Mapping[str, str]],
    living: set[UUID],
) -> Plan:
    """Compare what is wanted with what is there. `living` are the ids of all topics that the source has.

    Nothing is ever deleted, nor does a topic become a mirror that was not made as one: what the source has deleted
    stays here until somebody deletes it here, and then the source's new topic of that name is copied.
    """
    create: list[NewTopic] = []
    extend: list[NewPartitions] = []
    configure: dict[str, Sequence[ConfigChange]] = {}
    problems: dict[str, str] = {}
    time_slice = TimeSlice()
    for topic in wanted:
        await time_slice.maybe_yield()
        name, count = topic.name or "", len(topic.partitions)
        known = image.topic(name)
        wishes = configs.get(name)
        if known is None:
            if count and wishes is not None:
                create.append(NewTopic(name, count, configs=wishes, mirror_of=topic.topic_id))
        elif not known.is_mirrored:
            problems[name] = "exists here already, and is not a mirror"
        elif known.mirrored.source_id != topic.topic_id:
            problems[name] = "was deleted and created again at the source: delete it here to have the new one copied"
        elif known.mirrored.mirroring is Mirroring.FOLLOWING:
            if count > len(known.partitions):
                extend.append(NewPartitions(name, count, from_source=True))
            if wishes is not None and (changes := _changes(known.configs, wishes)):
                configure[name] = changes
    for known in image.topics.values():
        await time_slice.maybe_yield()
        if known.mirrored.mirroring is Mirroring.FOLLOWING and known.mirrored.source_id not in living:
            problems.setdefault(known.name, "was deleted at the source, or may not be seen there any more")
    return Plan(create, extend, configure, problems)


def _changes(here: Mapping[str, str], wishes: Mapping[str, str]) -> list[ConfigChange]:
    changes = [
        ConfigChange(name, ConfigOperation.SET, value) for name, value in wishes.items() if here.get(name) != value
    ]
    gone = (name for name in here if name not in wishes and is_copied(name))
    return changes + [ConfigChange(name, ConfigOperation.DELETE) for name in gone]


def is_copied(config: str) -> bool:
    """Whether a topic's config equals the source's."""
    return config in TOPIC_SETTINGS and not config.startswith(_LOCAL)


async def _configs(source: Source, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """The configs of the source's topics themselves; a topic that may not be described is left out."""
    found: dict[str, dict[str, str]] = {}
    for first in range(0, len(topics), _TOPICS_A_REQUEST):
        asked = [
            DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None)
            for name in topics[first : first + _TOPICS_A_REQUEST]
        ]
        answer = await source.call_any(DescribeConfigsRequest(resources=asked))
        for result in answer.results:
            if result.error_code == ErrorCode.NONE:
                found[result.resource_name] = {
                    it.name: it.value
                    for it in result.configs
                    if it.config_source == _SET_ON_THE_TOPIC and it.value is not None and is_copied(it.name)
                }
    return found
