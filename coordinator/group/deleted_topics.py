"""Takes deleted topics out of groups: the offsets that were committed for them, and what share groups know of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.config import OFFSETS_TOPIC
from ottla.coordinator.group.offsets.deleted_topic_cleanup import DeletedTopicCleanup
from ottla.coordinator.group.share.group import ShareGroup

if TYPE_CHECKING:
    from ottla.coordinator.group.shard.shards import GroupShards
    from ottla.coordinator.group.share.groups import ShareGroups
    from ottla.coordinator.group.topics import GroupTopics
    from ottla.metadata.image import MetadataDelta
    from ottla.runtime.supervisor import Tasks

logger = logging.getLogger(__name__)


class DeletedTopics:
    """The deleted topics of one broker's groups. `run` is its life."""

    def __init__(self, shards: GroupShards, share_groups: ShareGroups, topics: GroupTopics, nursery: Tasks) -> None:
        self._runtime = shards.runtime
        self._offsets = DeletedTopicCleanup(shards.runtime, topics)
        self._share_groups = share_groups
        self._nursery = nursery
        # The partitions with share groups that keep deleted topics for now.
        self._unforgotten: set[int] = set()

    async def run(self) -> None:
        """Look through the offsets of partitions as they come up, until cancelled."""
        await self._offsets.run()

    def follow(self, delta: MetadataDelta) -> None:
        """Topics were deleted."""
        for topic in delta.deleted_topics:
            if topic.name != OFFSETS_TOPIC:
                self._offsets.forget_topic(topic.name)
        if delta.deleted_topics:
            for shard in self._runtime.loaded_shards():
                self._nursery.start_soon(self._forget_shares, shard.partition)

    def loaded(self, partition: int) -> None:
        """Topics that were deleted while the partition had no leader are found when it is loaded."""
        self._offsets.look_at(partition)
        self._nursery.start_soon(self._forget_shares, partition)

    def try_again(self) -> None:
        """Look again where something of deleted topics was left."""
        self._offsets.try_again()
        while self._unforgotten:
            self._nursery.start_soon(self._forget_shares, self._unforgotten.pop())

    async def _forget_shares(self, partition: int) -> None:
        """Take deleted topics out of the share groups of a partition. One that is not here is looked through when it is
        loaded.
        """
        try:
            groups = self._runtime.shard(partition).groups_of(ShareGroup)
        except CoordinatorError:
            return
        try:
            await self._share_groups.forget_topics(groups)
        except CoordinatorError as error:
            logger.debug("share groups of partition %d keep deleted topics for now: %s", partition, error)
            self._unforgotten.add(partition)
