"""The coordinators of a node, each created once its topic exists or a request first asks for it.

A broker that no group or transaction has used yet has nothing to coordinate, and starts without them.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Final

import trio

from ottla.coordinator.metadata import CoordinatorMetadata
from ottla.coordinator.replica_log import ReplicaLog
from ottla.kproto.internal_records import record_types
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from ottla.runtime.supervisor import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.coordinator.group.shard.shard import GroupShard
    from ottla.coordinator.share.cluster import ClusterPersister, InternalTopics, OtherShareCoordinators
    from ottla.coordinator.share.coordinator import ShareCoordinator
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.coordinator.transaction.markers import ReplicaMarkers
    from ottla.coordinator.transaction.other_brokers import OtherBrokers, TransactionVerifier
    from ottla.metadata.image import MetadataDelta
    from ottla.metadata.producer_ids import ProducerIds
    from ottla.replica.manager import ReplicaManager
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock


_GROUP_MODULES: Final = (
    "ottla.coordinator.group.coordinator",
    "ottla.coordinator.group.topics",
    "ottla.runtime.purgatory",
    "ottla.coordinator.settings",
)
_SHARE_MODULES: Final = (
    "ottla.coordinator.share.coordinator",
    "ottla.coordinator.share.cluster",
    "ottla.coordinator.settings",
)
_TRANSACTION_MODULES: Final = (
    "ottla.coordinator.transaction.coordinator",
    "ottla.coordinator.transaction.markers",
    "ottla.coordinator.transaction.other_brokers",
    "ottla.coordinator.settings",
)


def _load(topic: str, modules: Sequence[str]) -> None:
    for name in modules:
        import_module(name)
    record_types(topic)


class Coordinators:
    """The coordinators created so far. `nursery` runs their work in the background; the node ends them with `close`.

    `other_brokers` creates what transactions across several brokers need, when the first one needs it;
    `other_share_coordinators` does the same for share groups.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        replica_manager: ReplicaManager,
        producer_ids: ProducerIds,
        internal_topics: InternalTopics,
        nursery: Tasks,
        other_brokers: Callable[[], OtherBrokers],
        other_share_coordinators: Callable[[], OtherShareCoordinators],
    ) -> None:
        self._config = config
        self._clock = clock
        self._replica_manager = replica_manager
        self._producer_ids = producer_ids
        self._internal_topics = internal_topics
        self._nursery = nursery
        self._make_other_brokers = other_brokers
        self._make_other_share_coordinators = other_share_coordinators
        #: As far as they have followed it.
        self.metadata = CoordinatorMetadata()

    async def follow(self, delta: MetadataDelta) -> None:
        """Follow a change of the metadata that the replica manager has already applied."""
        self.metadata.follow(delta)
        # A coordinator that was never created has led no partition: its topic did not exist.
        if "shares" in vars(self) or await self._has_begun(SHARE_GROUP_STATE, _SHARE_MODULES):
            self.shares.apply(delta)
        if "groups" in vars(self) or await self._has_begun(CONSUMER_OFFSETS, _GROUP_MODULES):
            self.groups.apply(delta)
        if "transactions" in vars(self) or await self._has_begun(TRANSACTION_STATE, _TRANSACTION_MODULES):
            self.transactions.apply(delta)

    def loaded_groups(self) -> list[GroupShard]:
        """The groups of each partition that this node coordinates and has replayed."""
        groups: GroupCoordinator | None = vars(self).get("groups")
        return [] if groups is None else groups.runtime.loaded_shards()

    def answer_waiting(self) -> None:
        """Answer everyone who waits for other clients, or to ask a share coordinator again, now and later: this node is
        stopping. Everything else continues.
        """
        if "persister" in vars(self):
            self.persister.close()
        groups: GroupCoordinator | None = vars(self).get("groups")
        if groups is not None:
            groups.answers.close()

    def close(self) -> None:
        """Stop coordinating: waiting and later requests are refused at once."""
        self.answer_waiting()
        for made in map(vars(self).get, ("transactions", "groups", "shares")):
            if made is not None:
                made.runtime.close()

    async def _has_begun(self, topic: str, modules: Sequence[str]) -> bool:
        """Whether a coordinator's topic exists. If so, its modules are loaded, in a thread: that takes about 10 ms."""
        if self.metadata.image.topic(topic) is None:
            return False
        await trio.to_thread.run_sync(_load, topic, modules)
        return True

    @cached_property
    def groups(self) -> GroupCoordinator:
        """The group coordinator."""
        from ottla.coordinator.group.coordinator import GroupCoordinator
        from ottla.coordinator.group.topics import GroupTopics
        from ottla.coordinator.settings import BrokerGroupConfigs, group_config
        from ottla.runtime.purgatory import Purgatory

        return GroupCoordinator(
            node_id=self._config.node_id,
            config=group_config(self._config),
            clock=self._clock,
            log=ReplicaLog(self._replica_manager, self.metadata, CONSUMER_OFFSETS),
            topics=GroupTopics(self.metadata),
            purgatory=Purgatory("group"),
            nursery=self._nursery,
            configs=BrokerGroupConfigs(self._config, self.metadata),
            share_state=self,
        )

    @cached_property
    def shares(self) -> ShareCoordinator:
        """The share coordinator."""
        from ottla.coordinator.settings import share_coordinator_config
        from ottla.coordinator.share.coordinator import ShareCoordinator
        from ottla.coordinator.share.topics import ShareTopics

        return ShareCoordinator(
            node_id=self._config.node_id,
            config=share_coordinator_config(self._config),
            clock=self._clock,
            log=ReplicaLog(self._replica_manager, self.metadata, SHARE_GROUP_STATE),
            topics=ShareTopics(self.metadata),
            nursery=self._nursery,
        )

    @cached_property
    def persister(self) -> ClusterPersister:
        """The keeper of share partitions' state, for group coordinators and the leaders of partitions."""
        from ottla.coordinator.share.cluster import ClusterPersister

        return ClusterPersister(
            self._config.node_id,
            self.shares,
            self.other_share_coordinators,
            self.metadata,
            self._internal_topics,
        )

    @cached_property
    def other_share_coordinators(self) -> OtherShareCoordinators:
        """How other brokers are asked about share groups."""
        return self._make_other_share_coordinators()

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator."""
        from ottla.coordinator.settings import transaction_config
        from ottla.coordinator.transaction.coordinator import TransactionCoordinator
        from ottla.coordinator.transaction.other_brokers import ClusterMarkers

        return TransactionCoordinator(
            node_id=self._config.node_id,
            config=transaction_config(self._config),
            clock=self._clock,
            log=ReplicaLog(self._replica_manager, self.metadata, TRANSACTION_STATE),
            markers=ClusterMarkers(self.markers, self, self.metadata, node_id=self._config.node_id),
            producer_ids=self._producer_ids,
            metadata=self.metadata,
            nursery=self._nursery,
        )

    @cached_property
    def markers(self) -> ReplicaMarkers:
        """Writes transaction markers into the partitions that this node leads."""
        from ottla.coordinator.transaction.markers import ReplicaMarkers

        return ReplicaMarkers(self._replica_manager, self.groups.offsets, self.metadata, self._clock)

    @cached_property
    def transaction_verifier(self) -> TransactionVerifier:
        """Verifies with the coordinator of a transaction, here or elsewhere, that a partition takes part in it."""
        from ottla.coordinator.transaction.other_brokers import TransactionVerifier

        return TransactionVerifier(self, self.metadata, node_id=self._config.node_id)

    @cached_property
    def other_brokers(self) -> OtherBrokers:
        """How other brokers are asked about transactions."""
        return self._make_other_brokers()
