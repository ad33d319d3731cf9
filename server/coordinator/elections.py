"""Tells coordinators which partitions of their internal topics this node leads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.server.coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    import trio

    from ottla.server.metadata.image import MetadataDelta

logger = logging.getLogger(__name__)


class Coordinator(Protocol):
    """Whoever keeps state in an internal topic."""

    def elect(self, partition: int) -> None:
        """This node leads the partition now; called again for one that it led before is nothing new."""
        ...

    def resign(self, partition: int) -> None:
        """This node leads the partition no longer; called for one that it did not lead is nothing."""
        ...


class OffsetKeeper(Protocol):
    """Whoever keeps something about other topics, and forgets it with them."""

    async def forget_topic(self, topic: str) -> None: ...


class Elections:
    """A subscriber of the metadata, to be called after the replica manager: a coordinator reads what it leads."""

    def __init__(
        self,
        node_id: int,
        coordinators: Mapping[str, Coordinator],
        offset_keeper: OffsetKeeper,
        nursery: trio.Nursery,
    ) -> None:
        self._node_id = node_id
        self._coordinators = coordinators
        self._offset_keeper = offset_keeper
        self._nursery = nursery

    async def apply(self, delta: MetadataDelta) -> None:
        for topic in delta.deleted_topics:
            coordinator = self._coordinators.get(topic.name)
            if coordinator is None:
                self._nursery.start_soon(self._forget, topic.name)
                continue
            for partition in range(len(topic.partitions)):
                coordinator.resign(partition)
        for change in delta.changed_partitions:
            coordinator = self._coordinators.get(change.topic.name)
            if coordinator is None:
                continue
            if change.after.leader == self._node_id:
                coordinator.elect(change.partition)
            else:
                coordinator.resign(change.partition)

    async def _forget(self, topic: str) -> None:
        try:
            await self._offset_keeper.forget_topic(topic)
        except CoordinatorError as error:
            logger.warning("offsets committed for the deleted topic %s stay until they expire: %s", topic, error)
