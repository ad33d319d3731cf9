"""Who leads each partition: a duty of the controller (org.apache.kafka.controller.ReplicationControlManager).

Brokers that are fenced leave the in-sync sets, and what they led is led by a living member of the set, or by an
eligible leader (KIP-966); if there is none, the partition has no leader until one returns. With
`auto.leader.rebalance.enable` leadership goes back to the first replica now and then. Decisions are a function of the
image, so a new controller looks at everything once, and then only at what changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.metadata.changes.eligible_leaders import may_forget, min_in_sync, reconsider
from ottla.metadata.changes.partition_changes import elect_preferred, follow_live, is_unclean
from ottla.metadata.image import NO_LEADER
from ottla.metastore.errors import MetadataError
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.metadata.changes.partition_changes import PartitionUpdate
    from ottla.metadata.changes.partition_transactions import PartitionKey
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import MetadataDelta, MetadataImage, TopicImage
    from ottla.settings.config import BrokerConfig

logger = logging.getLogger(__name__)

#: Partitions that are given back to their preferred leaders at once (MAX_ELECTIONS_PER_IMBALANCE).
_MAX_PREFERRED: Final = 1000
_NAMED: Final = 10


class ElectionPlan(NamedTuple):
    """The changes to make, and what an unclean election may lose: (topic, partition, new leader)."""

    changes: dict[PartitionKey, PartitionUpdate]
    unclean: list[tuple[str, int, int]]
    leaderless: int


async def plan_elections(image: MetadataImage, topics: Iterable[TopicImage], config: BrokerConfig) -> ElectionPlan:
    """The changes of these topics after which only live brokers lead and are in sync."""
    live = frozenset(broker.node_id for broker in image.live_brokers())
    plan = ElectionPlan({}, [], 0)
    leaderless = 0
    time_slice = TimeSlice()
    count_of = min_in_sync(image, config)
    for topic in topics:
        unclean: bool | None = None
        for index, state in enumerate(topic.partitions):
            if time_slice.is_over:
                await time_slice.maybe_yield()
            update: PartitionUpdate = partial(follow_live, live=live)
            after = update(state)
            if after.leader == NO_LEADER:
                if unclean is None:
                    unclean = config.topic_config(topic.configs).unclean_leader_election_enable
                if unclean:
                    update = partial(follow_live, live=live, unclean=True)
                    after = update(state)
                    if is_unclean(state, after):
                        plan.unclean.append((topic.name, index, after.leader))
            if after is state and may_forget(state, count_of(topic)):
                update = reconsider
                after = update(state)
            leaderless += after.leader == NO_LEADER
            if after != state:
                plan.changes[topic.topic_id, index] = update
    return plan._replace(leaderless=leaderless)


async def plan_preferred(image: MetadataImage) -> dict[PartitionKey, PartitionUpdate]:
    """Elections that give leadership to preferred replicas that could lead and do not."""
    live = frozenset(broker.node_id for broker in image.live_brokers())
    changes: dict[PartitionKey, PartitionUpdate] = {}
    time_slice = TimeSlice()
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if time_slice.is_over:
                await time_slice.maybe_yield()
            preferred = state.replicas[0]
            if state.leader != preferred and preferred in live and preferred in state.isr:
                changes[topic.topic_id, index] = partial(elect_preferred, live=live)
                if len(changes) == _MAX_PREFERRED:
                    return changes
    return changes


class Elections:
    """The duty. `observe` is subscribed to the metadata's changes; `run` and `rebalance` last as long as this node is
    controller."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._is_active = False
        self._everything = False
        self._topics: set[str] = set()
        self._wanted = trio.Event()

    async def observe(self, delta: MetadataDelta) -> None:
        """Note what must be looked at; called for every change of the metadata."""
        if not self._is_active:
            return
        before = {broker.node_id for broker in delta.before.live_brokers()} if delta.changed_brokers else set()
        live = {broker.node_id for broker in delta.after.live_brokers()}
        # A broker's settings may allow unclean elections now, and a topic's own may.
        if (delta.changed_brokers and before != live) or delta.changed_configs or delta.features_changed:
            self._look_at_everything()
        self._topics.update(topic.name for topic in delta.reconfigured_topics)
        self._topics.update(
            it.topic.name
            for it in delta.changed_partitions
            if it.after.leader not in live or not live.issuperset(it.after.isr)
        )
        if self._topics:
            self._wanted.set()

    async def run(self, controller: Controller) -> None:
        """Elect until cancelled. Raises a MetadataError when the store cannot be reached; then it is begun again."""
        self._is_active = True
        self._look_at_everything()
        try:
            await self._follow(controller)
        finally:
            self._is_active = False
            self._topics.clear()

    async def rebalance(self, controller: Controller) -> None:
        """The other half of the duty: give leadership back to preferred replicas. Raises as `run` does."""
        while True:
            await trio.sleep(self._config.leader_imbalance_check_interval_seconds)
            if not self._config.auto_leader_rebalance_enable:
                continue
            changes = await plan_preferred(controller.image)
            if changes:
                await controller.change_partitions(changes)
                keys = {"partitions": len(changes)}
                logger.info("%d partitions went back to their preferred leaders", len(changes), extra=keys)

    def _look_at_everything(self) -> None:
        self._everything = True
        self._wanted.set()

    async def _follow(self, controller: Controller) -> None:
        while True:
            with trio.move_on_after(self._config.unclean_leader_election_interval_ms / 1000) as scope:
                await self._wanted.wait()
            self._wanted = trio.Event()
            everything, self._everything = self._everything or scope.cancelled_caught, False
            named, self._topics = self._topics, set()
            image = controller.image
            topics = image.topics.values() if everything else [t for name in named if (t := image.topic(name))]
            await self._elect(controller, image, topics)

    async def _elect(self, controller: Controller, image: MetadataImage, topics: Iterable[TopicImage]) -> None:
        plan = await plan_elections(image, topics, self._config)
        if not plan.changes:
            return
        for name, index, leader in plan.unclean[:_NAMED]:
            keys = {"topic": name, "partition": index, "leader": leader}
            logger.error(
                "%s-%d has no replica left that is in sync: node %d leads it (unclean.leader.election.enable), "
                "and acknowledged records that it lacks are lost", name, index, leader, extra=keys,
            )  # fmt: skip
        if len(plan.unclean) > _NAMED:
            logger.error("and the same is true of %d more partitions", len(plan.unclean) - _NAMED)
        results = await controller.change_partitions(plan.changes)
        refused = sum(isinstance(result, MetadataError) for result in results.values())
        logger.info(
            "brokers left or joined: %d partitions changed, %d have no leader",
            len(results) - refused,
            plan.leaderless,
            extra={"changed": len(results) - refused, "leaderless": plan.leaderless},
        )
