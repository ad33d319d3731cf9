"""What requests do to groups of the consumer protocol (KIP-848): find, found or convert the group, under its lock.

Whatever is refused is a CoordinatorError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.coordinator.errors import GroupIdNotFoundError
from ottla.server.coordinator.group import records
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicState
from ottla.server.coordinator.group.consumer_group import ConsumerGroup
from ottla.server.coordinator.group.modern_group import JOIN_EPOCH
from ottla.server.coordinator.group.share_group import ShareGroup
from ottla.server.coordinator.group.streams_group import StreamsGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.coordinator.group.consumer import ConsumerProtocol, Heartbeat, HeartbeatResult
    from ottla.server.coordinator.group.locks import GroupLocks
    from ottla.server.coordinator.group.migration import Migration
    from ottla.server.coordinator.group.shard import GroupShard


class ConsumerGroups:
    """The groups of the consumer protocol of one broker; `find_shard` gives the partition that a group lives in, or
    raises.
    """

    def __init__(
        self,
        protocol: ConsumerProtocol,
        migration: Migration,
        locks: GroupLocks,
        find_shard: Callable[[str], GroupShard],
    ) -> None:
        self._protocol = protocol
        self._migration = migration
        self._locks = locks
        self._shard = find_shard

    async def heartbeat(self, group_id: str, beat: Heartbeat) -> HeartbeatResult:
        """ConsumerGroupHeartbeat: join, stay, revoke, take or leave."""
        async with self._locks.exclusively(group_id):
            shard = self._shard(group_id)
            group = shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                return await self._protocol.heartbeat(group, beat)
            if isinstance(group, ShareGroup | StreamsGroup):
                raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
            if beat.member_epoch != JOIN_EPOCH:
                raise GroupIdNotFoundError(f"Group {group_id} not found.")
            if group is not None and not group.is_in(ClassicState.EMPTY):
                return await self._upgrade(group, beat)
            founded = ConsumerGroup(group_id)
            if group is not None:
                founded.founding = [records.group_tombstone(group_id)]
            with shard.expecting(founded):
                return await self._protocol.heartbeat(founded, beat)

    async def _upgrade(self, group: ClassicGroup, beat: Heartbeat) -> HeartbeatResult:
        """Turn a classic group with members into one of the consumer protocol, for the member that joins.

        If the member is refused, or its client goes away first, the group is turned back: nobody in it would speak the
        consumer protocol.
        """
        upgraded = await self._migration.upgrade(group)
        try:
            return await self._protocol.heartbeat(upgraded, beat)
        except BaseException:
            if not upgraded.removed:
                await self._migration.turn_back(upgraded)
            raise

    def describe(self, group_id: str) -> ConsumerGroup:
        """The group of the consumer protocol as it is now. Raises GroupIdNotFoundError."""
        group = self._shard(group_id).groups.get(group_id)
        if isinstance(group, ClassicGroup | ShareGroup | StreamsGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group
