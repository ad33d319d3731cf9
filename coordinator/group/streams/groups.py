"""Requests to streams groups (KIP-1071): find or create the group, under its lock.

Refusals are CoordinatorErrors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.errors import GroupIdNotFoundError
from ottla.coordinator.group.modern.group import LEAVE_EPOCH
from ottla.coordinator.group.modern.groups import ModernGroups
from ottla.coordinator.group.modern.static_members import LEAVE_STATIC_EPOCH
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.heartbeat import StreamsHeartbeat, StreamsHeartbeatResult

if TYPE_CHECKING:
    from ottla.coordinator.group.locks import GroupLocks
    from ottla.coordinator.group.shard.shards import GroupShards
    from ottla.coordinator.group.streams.protocol import StreamsProtocol


class StreamsGroups(ModernGroups[StreamsGroup, StreamsHeartbeat, StreamsHeartbeatResult]):
    """The streams groups of one broker."""

    def __init__(self, protocol: StreamsProtocol, locks: GroupLocks, shards: GroupShards) -> None:
        super().__init__(protocol, locks, shards)
        self._streams = protocol

    async def describe_topology(
        self, group_id: str, member_id: str, topology_epoch: int, description: bytes | None
    ) -> None:
        """StreamsGroupTopologyDescriptionUpdate: keep what a member says about the topology of its group."""
        async with self._locks.exclusively(group_id):
            await self._streams.describe_topology(self.describe(group_id), member_id, topology_epoch, description)

    def _not_found(self, group_id: str, beat: StreamsHeartbeat | None = None) -> GroupIdNotFoundError:
        stays = beat is not None and beat.member_epoch not in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)
        return GroupIdNotFoundError(f"{'Streams group' if stays else 'Group'} {group_id} not found.")
