"""The coordinators' topics grow with the cluster: a duty of the controller.

They are created with as many replicas as there are brokers, which is one on the first node of three. When there are
enough brokers for `offsets.topic.replication.factor` and the like, they are reassigned to that many; and when all of
those are in sync, `min.insync.replicas` becomes what it would have been from the start.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ottla.metadata.image import INTERNAL_TOPICS, ConfigResource, ResourceType
from ottla.metadata.internal_topics import internal_topic
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.metadata.changes.partition_changes import PartitionUpdate
    from ottla.metadata.changes.partition_transactions import PartitionKey
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import BrokerImage, MetadataDelta, MetadataImage, PartitionState, TopicImage
    from ottla.settings.config import BrokerConfig

logger = logging.getLogger(__name__)

_MIN_IN_SYNC: Final = "min.insync.replicas"


async def plan_growth(image: MetadataImage, config: BrokerConfig) -> dict[PartitionKey, PartitionUpdate]:
    """Reassignments that give the coordinators' partitions the replicas they lack, as far as there are brokers."""
    from ottla.metadata.changes.partition_changes import is_reassigning, reassign

    live = {broker.node_id: broker for broker in image.live_brokers()}
    brokers = tuple(image.brokers)
    changes: dict[PartitionKey, PartitionUpdate] = {}
    time_slice = TimeSlice()
    for topic in _present(image):
        count = min(internal_topic(topic.name, config, len(image.brokers)).replication_factor, len(live))
        spread = _Spread(topic, live)
        for index, state in enumerate(topic.partitions):
            await time_slice.maybe_yield()
            if len(state.replicas) < count and not is_reassigning(state):
                target = spread.grown(state, count)
                changes[topic.topic_id, index] = partial(reassign, target=target, brokers=brokers)
    return changes


def plan_min_in_sync(image: MetadataImage, config: BrokerConfig) -> Mapping[ConfigResource, str]:
    """The `min.insync.replicas` of topics that have grown beyond what they were created with, and are in sync."""
    changes = {}
    for topic in _present(image):
        wanted = internal_topic(topic.name, config, len(image.brokers)).configs.get(_MIN_IN_SYNC)
        has = topic.configs.get(_MIN_IN_SYNC)
        in_sync = min(len(state.isr) for state in topic.partitions)
        # One more than that, or the loss of one broker would stop the coordinators.
        if wanted is not None and has is not None and int(has) < int(wanted) < in_sync:
            changes[ConfigResource(ResourceType.TOPIC, topic.name)] = wanted
    return changes


def _present(image: MetadataImage) -> list[TopicImage]:
    return [topic for name in sorted(INTERNAL_TOPICS) if (topic := image.topic(name)) is not None]


class _Spread:
    """How many replicas of a topic each broker has, and how many it leads when leaders are the preferred ones."""

    def __init__(self, topic: TopicImage, live: Mapping[int, BrokerImage]) -> None:
        self._live = live
        self._held = Counter(replica for state in topic.partitions for replica in state.replicas)
        self._led = Counter(state.replicas[0] for state in topic.partitions)

    def grown(self, state: PartitionState, count: int) -> Sequence[int]:
        """The replicas of a partition plus the brokers that hold least; those in racks where it has none go first."""
        replicas = list(state.replicas)
        while len(replicas) < count:
            racks = {self._live[replica].rack for replica in replicas if replica in self._live}
            added = min(
                (broker for broker in self._live if broker not in replicas),
                key=lambda broker: (self._live[broker].rack in racks, self._held[broker], broker),
            )
            self._held[added] += 1
            replicas.append(added)
        first = min(replicas, key=lambda broker: (self._led[broker], broker != state.replicas[0]))
        self._led[state.replicas[0]] -= 1
        self._led[first] += 1
        return [first, *(replica for replica in replicas if replica != first)]


class InternalTopicReplication:
    """The duty. `observe` is subscribed to the metadata's changes; `run` lasts as long as this node is controller."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._wanted = trio.Event()

    async def observe(self, delta: MetadataDelta) -> None:
        """Look again when brokers come or go, and when something of the coordinators' topics changes."""
        if delta.changed_brokers or any(change.topic.is_internal for change in delta.changed_partitions):
            self._wanted.set()

    async def run(self, controller: Controller) -> None:
        """Run until cancelled. Raises a MetadataError when the store cannot be reached; it is then started again."""
        while True:
            await self._grow(controller)
            await self._wanted.wait()
            self._wanted = trio.Event()

    async def _grow(self, controller: Controller) -> None:
        image = controller.image
        if sum(1 for _ in image.live_brokers()) < 2:
            return
        changes = await plan_growth(image, self._config)
        if changes:
            await controller.change_partitions(changes)
            text = "%d partitions of coordinators get more replicas: there are brokers for them now"
            logger.info(text, len(changes), extra={"partitions": len(changes)})
        min_in_sync = plan_min_in_sync(image, self._config)
        if min_in_sync:
            from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation

            await controller.alter_configs(
                {
                    resource: [ConfigChange(_MIN_IN_SYNC, ConfigOperation.SET, value)]
                    for resource, value in min_in_sync.items()
                }
            )
            for resource, value in min_in_sync.items():
                text = "%s needs %s replicas in sync now, because there are brokers for them"
                logger.info(text, resource.name, value, extra={"topic": resource.name})
