"""What requests do to streams groups (KIP-1071): find or found the group, under its lock.

Whatever is refused is a CoordinatorError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.coordinator.errors import GroupIdNotFoundError
from ottla.server.coordinator.group import records
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicState
from ottla.server.coordinator.group.modern_group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.server.coordinator.group.static_members import LEAVE_STATIC_EPOCH
from ottla.server.coordinator.group.streams_group import StreamsGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.coordinator.group.locks import GroupLocks
    from ottla.server.coordinator.group.shard import GroupShard
    from ottla.server.coordinator.group.streams import StreamsProtocol
    from ottla.server.coordinator.group.streams_beat import StreamsHeartbeat, StreamsHeartbeatResult


class StreamsGroups:
    """The streams groups of one broker; `find_shard` gives the partition that a group lives in, or raises."""

    def __init__(self, protocol: StreamsProtocol, locks: GroupLocks, find_shard: Callable[[str], GroupShard]) -> None:
        self._protocol = protocol
        self._locks = locks
        self._shard = find_shard

    async def heartbeat(self, group_id: str, beat: StreamsHeartbeat) -> StreamsHeartbeatResult:
        """StreamsGroupHeartbeat: join, stay, revoke, take or leave."""
        async with self._locks.exclusively(group_id):
            shard = self._shard(group_id)
            group = shard.groups.get(group_id)
            if isinstance(group, StreamsGroup):
                return await self._protocol.heartbeat(group, beat)
            joins = beat.member_epoch == JOIN_EPOCH
            gives_way = isinstance(group, ClassicGroup) and group.is_in(ClassicState.EMPTY)
            if group is not None and not (joins and gives_way):
                raise GroupIdNotFoundError(f"Group {group_id} is not a streams group.")
            if not joins:
                kind = "Group" if beat.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH) else "Streams group"
                raise GroupIdNotFoundError(f"{kind} {group_id} not found.")
            founded = StreamsGroup(group_id)
            if group is not None:
                founded.founding = [records.group_tombstone(group_id)]
            with shard.expecting(founded):
                return await self._protocol.heartbeat(founded, beat)

    async def describe_topology(
        self, group_id: str, member_id: str, topology_epoch: int, description: bytes | None
    ) -> None:
        """StreamsGroupTopologyDescriptionUpdate: keep what a member says about the topology of its group."""
        async with self._locks.exclusively(group_id):
            await self._protocol.describe_topology(self.describe(group_id), member_id, topology_epoch, description)

    def describe(self, group_id: str) -> StreamsGroup:
        """The streams group as it is now. Raises GroupIdNotFoundError."""
        group = self._shard(group_id).groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        raise GroupIdNotFoundError(f"Group {group_id} is not a streams group.")
