"""What requests do to share groups (KIP-932): find or found the group, under its lock.

Whatever is refused is a CoordinatorError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.coordinator.errors import CoordinatorError, GroupIdNotFoundError, InvalidGroupIdError
from ottla.server.coordinator.group.modern_group import JOIN_EPOCH
from ottla.server.coordinator.group.share_group import ShareGroup
from ottla.server.coordinator.group.share_offsets import ShareOffset
from ottla.server.coordinator.share.state import SharePartitionKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.server.coordinator.group.locks import GroupLocks
    from ottla.server.coordinator.group.shard import GroupShard
    from ottla.server.coordinator.group.share import ShareHeartbeat, ShareHeartbeatResult, ShareProtocol
    from ottla.server.coordinator.group.share_offsets import ShareOffsets


class ShareGroups:
    """The share groups of one broker; `find_shard` gives the partition that a group lives in, or raises."""

    def __init__(
        self,
        protocol: ShareProtocol,
        offsets: ShareOffsets,
        locks: GroupLocks,
        find_shard: Callable[[str], GroupShard],
    ) -> None:
        self._protocol = protocol
        self._offsets = offsets
        self._locks = locks
        self._shard = find_shard

    async def heartbeat(self, group_id: str, beat: ShareHeartbeat) -> ShareHeartbeatResult:
        """ShareGroupHeartbeat: join, stay, subscribe or leave."""
        async with self._locks.exclusively(group_id):
            shard = self._shard(group_id)
            group = self._find(group_id, may_be_new=beat.member_epoch == JOIN_EPOCH)
            if group is not None:
                return await self._protocol.heartbeat(group, beat)
            founded = ShareGroup(group_id)
            with shard.expecting(founded):
                return await self._protocol.heartbeat(founded, beat)

    def _find(self, group_id: str, *, may_be_new: bool = False) -> ShareGroup | None:
        """The share group; None for one that does not exist and may be created. Raises GroupIdNotFoundError."""
        group = self._shard(group_id).groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is not None:
            raise GroupIdNotFoundError(f"Group {group_id} is not a share group.")
        if not may_be_new:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return None

    def describe(self, group_id: str) -> ShareGroup:
        """The share group as it is now. Raises GroupIdNotFoundError."""
        group = self._find(group_id)
        assert group is not None
        return group

    async def describe_offsets(
        self, group_id: str, partitions: Sequence[SharePartitionKey] | None
    ) -> dict[SharePartitionKey, ShareOffset]:
        """How far a share group is with partitions; None: with all that it has begun with, which is nothing for a group
        that does not exist.

        The persister is asked only about those: it may be away, and a request may name any number of others.
        """
        group = self._shard(group_id).groups.get(group_id)
        begun = group.state_partitions.initialized if isinstance(group, ShareGroup) else {}
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
            shard = self._shard(group_id)
            group = self._find(group_id, may_be_new=True)
            if group is not None:
                return await self._offsets.alter(group, offsets)
            founded = ShareGroup(group_id)
            with shard.expecting(founded):
                return await self._offsets.alter(founded, offsets)

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
