"""Requests to share groups (KIP-932): find or create the group, under its lock.

Refusals are CoordinatorErrors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.errors import CoordinatorError, InvalidGroupIdError
from ottla.coordinator.group.modern.groups import ModernGroups
from ottla.coordinator.group.modern.heartbeat import HeartbeatResult
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.offsets import ShareOffset
from ottla.coordinator.group.share.protocol import ShareHeartbeat
from ottla.coordinator.share.state import SharePartitionKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.coordinator.group.locks import GroupLocks
    from ottla.coordinator.group.shard.shards import GroupShards
    from ottla.coordinator.group.share.offsets import ShareOffsets
    from ottla.coordinator.group.share.protocol import ShareProtocol


class ShareGroups(ModernGroups[ShareGroup, ShareHeartbeat, HeartbeatResult]):
    """The share groups of one broker."""

    def __init__(
        self,
        protocol: ShareProtocol,
        offsets: ShareOffsets,
        locks: GroupLocks,
        shards: GroupShards,
    ) -> None:
        super().__init__(protocol, locks, shards)
        self._offsets = offsets

    async def describe_offsets(
        self, group_id: str, partitions: Sequence[SharePartitionKey] | None
    ) -> dict[SharePartitionKey, ShareOffset]:
        """How far a share group is with partitions; None: with all that it has begun with, which is nothing for a group
        that does not exist.

        The persister is asked only about those: it may be away, and a request may name any number of others.
        """
        group = self._shards.of(group_id).find(group_id, ShareGroup)
        begun = {} if group is None else group.state_partitions.initialized
        known = [
            SharePartitionKey(group_id, topic_id, index)
            for topic_id, (_, indexes) in begun.items()
            for index in sorted(indexes)
        ]
        if partitions is None:
            return await self._offsets.describe(known)
        asked = frozenset(partitions)
        described = await self._offsets.describe([key for key in known if key in asked])
        return {key: described.get(key, ShareOffset()) for key in partitions}

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[str, Mapping[int, int]]
    ) -> dict[tuple[str, int], CoordinatorError | None]:
        """Let a share group without members begin at other offsets; one that does not exist is created."""
        if not group_id:
            raise InvalidGroupIdError("a group id is needed")
        async with self._locks.exclusively(group_id):
            shard = self._shards.of(group_id)
            if group_id in shard.groups:
                return await self._offsets.alter(self.describe(group_id), offsets)
            created = ShareGroup(group_id)
            with shard.reserve_id(created):
                return await self._offsets.alter(created, offsets)

    async def delete_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, CoordinatorError | None]:
        """Forget how far a share group without members is with topics."""
        if not group_id:
            raise InvalidGroupIdError("a group id is needed")
        async with self._locks.exclusively(group_id):
            return await self._offsets.delete_topics(self.describe(group_id), topics)

    async def forget_topics(self, groups: Iterable[ShareGroup]) -> None:
        """Take deleted topics out of groups."""
        for group in groups:
            async with self._locks.exclusively(group.group_id):
                await self._offsets.forget_topics(group)

    async def forget_offsets(self, group: ShareGroup) -> None:
        """Forget how far a group is that is about to be deleted. The caller holds the group's lock."""
        await self._offsets.delete_all(group)
