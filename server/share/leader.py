"""The share partitions of a node, made with the first member that fetches from them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ottla.runtime.supervisor import Tasks

if TYPE_CHECKING:
    from ottla.coordinator.coordinators import Coordinators
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import MetadataDelta
    from ottla.replica.manager import ReplicaManager
    from ottla.server.cluster.peers import Peers
    from ottla.server.share.manager import SharePartitionManager
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.worker_threads import WorkerThreads


class ShareLeader:
    """The share partitions that this node leads. `nursery` runs its background work; the node ends it by `close`."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        replica_manager: ReplicaManager,
        coordinators: Coordinators,
        controller: Controller,
        peers: Peers,
        threads: WorkerThreads,
        nursery: Tasks,
    ) -> None:
        self._config = config
        self._clock = clock
        self._replica_manager = replica_manager
        self._coordinators = coordinators
        self._controller = controller
        self._peers = peers
        self._threads = threads
        self._nursery = nursery

    async def follow(self, delta: MetadataDelta) -> None:
        """Hear of a change of the metadata that the replica manager has applied."""
        if self.made is not None:
            await self.made.follow(delta)

    def close(self) -> None:
        """Serve nothing any more; what is held is given to others by the next leader."""
        if self.made is not None:
            self.made.close()

    @property
    def made(self) -> SharePartitionManager | None:
        """The manager, if a member has asked for it."""
        return vars(self).get("manager")

    @cached_property
    def manager(self) -> SharePartitionManager:
        """The share partitions and their sessions."""
        from ottla.server.share.config import BrokerShareConfigs
        from ottla.server.share.dead_letters import DeadLetterQueues
        from ottla.server.share.manager import SharePartitionManager

        persister = self._coordinators.persister
        configs = BrokerShareConfigs(self._config, self._coordinators.metadata)
        manager = SharePartitionManager(
            replica_manager=self._replica_manager,
            persister=persister,
            configs=configs,
            clock=self._clock,
            max_sessions=self._config.group_share_max_share_sessions,
            nursery=self._nursery,
            dead_letters=DeadLetterQueues(
                replica_manager=self._replica_manager,
                controller=self._controller,
                peers=self._peers,
                config=self._config,
                configs=configs,
                clock=self._clock,
                threads=self._threads,
            ),
        )
        persister.call_on_reset(manager.reset)
        return manager
