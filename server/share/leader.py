"""The share partitions of a node, made with the first member that fetches from them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.metadata.features import DEAD_LETTER_QUEUES, SHARE_VERSION
from ottla.metadata.image import ConfigResource, MetadataImage, ResourceType
from ottla.runtime.supervisor import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.coordinator.coordinators import Coordinators
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import MetadataDelta
    from ottla.replica.manager import ReplicaManager
    from ottla.server.cluster.peers import Peers
    from ottla.server.share.config import ShareConfig
    from ottla.server.share.manager import SharePartitionManager
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock


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
        offload: Callable[..., Awaitable[Any]],
        nursery: Tasks,
    ) -> None:
        self._config = config
        self._clock = clock
        self._replica_manager = replica_manager
        self._coordinators = coordinators
        self._controller = controller
        self._peers = peers
        self._offload = offload
        self._nursery = nursery
        self._image = MetadataImage()

    async def follow(self, delta: MetadataDelta) -> None:
        """Hear of a change of the metadata that the replica manager has applied."""
        self._image = delta.after
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
        from ottla.server.share.dead_letters import DeadLetterQueues
        from ottla.server.share.manager import SharePartitionManager

        persister = self._coordinators.persister
        manager = SharePartitionManager(
            replica_manager=self._replica_manager,
            persister=persister,
            config=self._share_config,
            clock=self._clock,
            max_sessions=self._config.group_share_max_share_sessions,
            nursery=self._nursery,
            dead_letters=DeadLetterQueues(
                replica_manager=self._replica_manager,
                controller=self._controller,
                call=self._peers.call,
                config=self._config,
                group_config=self._share_config,
                clock=self._clock,
                offload=self._offload,
            ),
        )
        persister.call_on_reset(manager.reset)
        return manager

    def _share_config(self, group_id: str) -> ShareConfig:
        from ottla.server.share.config import ShareConfig

        resource = ConfigResource(ResourceType.GROUP, group_id)
        has_dead_letters = self._image.features.get(SHARE_VERSION, 0) >= DEAD_LETTER_QUEUES
        own = self._config.group_config(self._image.resource_configs(resource))
        return ShareConfig(
            lock_duration_ms=own.share_record_lock_duration_ms,
            max_records=own.share_partition_max_record_locks,
            max_delivery_count=own.share_delivery_count_limit,
            is_read_committed=own.share_isolation_level == "read_committed",
            auto_offset_reset=own.share_auto_offset_reset,
            may_renew=own.share_renew_acknowledge_enable,
            dead_letter_topic=own.errors_deadletterqueue_topic_name if has_dead_letters else "",
            copies_dead_letters=own.errors_deadletterqueue_copy_record_enable,
        )
