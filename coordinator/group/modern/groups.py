"""Requests to groups whose members use a single heartbeat API: find or create the group, under its lock.

Refusals are CoordinatorErrors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ottla.coordinator.errors import GroupIdNotFoundError
from ottla.coordinator.group.modern.group import JOIN_EPOCH, ModernGroup

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group
    from ottla.coordinator.group.locks import GroupLocks
    from ottla.coordinator.group.modern.protocol import ModernProtocol
    from ottla.coordinator.group.shard.shards import GroupShards


class Heartbeat(Protocol):
    """The common fields of all heartbeats."""

    @property
    def member_epoch(self) -> int: ...


G = TypeVar("G", bound=ModernGroup[Any, Any, Any, Any])
B = TypeVar("B", bound=Heartbeat)
R = TypeVar("R")


class ModernGroups(Generic[G, B, R]):
    """The groups of one kind on one broker."""

    def __init__(self, protocol: ModernProtocol[G, Any, B, R], locks: GroupLocks, shards: GroupShards) -> None:
        self._protocol = protocol
        self._locks = locks
        self._shards = shards

    async def heartbeat(self, group_id: str, beat: B) -> R:
        """The heartbeat of this kind: join, stay, subscribe, revoke, take or leave."""
        group_class = self._protocol.group_class
        async with self._locks.exclusively(group_id):
            shard = self._shards.of(group_id)
            group = shard.find(group_id, group_class)
            if group is not None:
                return await self._protocol.heartbeat(group, beat)
            other = shard.groups.get(group_id)
            if other is not None and not (beat.member_epoch == JOIN_EPOCH and other.gives_way_to(group_class.kind)):
                return await self._heartbeat_elsewhere(other, beat)
            if beat.member_epoch != JOIN_EPOCH:
                raise self._not_found(group_id, beat)
            created = group_class(group_id)
            if other is not None:
                created.replace(other.tombstones())
            with shard.reserve_id(created):
                return await self._protocol.heartbeat(created, beat)

    async def _heartbeat_elsewhere(self, other: Group, beat: B) -> R:
        """Handle a heartbeat for a group of another kind."""
        raise self._is_of_another_kind(other)

    def describe(self, group_id: str) -> G:
        """The group as it is now. Raises GroupIdNotFoundError."""
        shard = self._shards.of(group_id)
        group = shard.find(group_id, self._protocol.group_class)
        if group is not None:
            return group
        other = shard.groups.get(group_id)
        raise self._not_found(group_id) if other is None else self._is_of_another_kind(other)

    def _not_found(self, group_id: str, beat: B | None = None) -> GroupIdNotFoundError:
        """The error for a group that does not exist, for a heartbeat or another request."""
        return GroupIdNotFoundError(f"Group {group_id} not found.")

    def _is_of_another_kind(self, group: Group) -> GroupIdNotFoundError:
        return GroupIdNotFoundError(f"Group {group.group_id} is not a {self._protocol.group_class.kind} group.")
