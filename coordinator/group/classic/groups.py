"""Requests to groups of the classic protocol: find or create the group. A member of a group of the consumer
protocol is served there.

Refusals are CoordinatorErrors.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.protocol import SyncRequest
from ottla.coordinator.group.group import Group

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.coordinator.group.classic.member import JoinResult, SyncResult
    from ottla.coordinator.group.classic.protocol import ClassicProtocol, JoinRequest
    from ottla.coordinator.group.classic.rebalance import ClassicConfig
    from ottla.coordinator.group.locks import GroupLocks
    from ottla.coordinator.group.shard.shards import GroupShards

G = TypeVar("G", contravariant=True)


@contextmanager
def _naming_no_member() -> Iterator[None]:
    """A JoinGroup that is refused here is answered without a member id, as by Kafka outside classic groups."""
    try:
        yield
    except CoordinatorError as error:
        error.name_no_member()
        raise


class ClassicMembership(Protocol[G]):
    """How the members of one kind of group that speak the classic protocol are served."""

    async def sync(self, group: G, request: SyncRequest) -> SyncResult:
        """SyncGroup: returns with this member's assignment."""

    def heartbeat(self, group: G, *, member_id: str, group_instance_id: str | None, generation_id: int) -> None:
        """Heartbeat: extends the session, or raises the error that tells the member what to do."""

    async def leave(self, group: G, member_id: str, group_instance_id: str | None) -> str:
        """LeaveGroup of one member; returns its id. The caller holds the group's lock."""


class ForeignMembership(ClassicMembership[G], Protocol[G]):
    """The same for groups of another kind that classic members may join."""

    async def join(self, group: G, request: JoinRequest) -> JoinResult:
        """JoinGroup: returns with the next generation. The caller holds the group's lock."""


class ClassicGroups:
    """The classic groups of one broker, and the classic members of its other groups."""

    def __init__(
        self,
        protocol: ClassicProtocol,
        others: Mapping[type[Group], ForeignMembership[Any]],
        *,
        config: ClassicConfig,
        locks: GroupLocks,
        shards: GroupShards,
    ) -> None:
        """`others` serve the classic members of groups of other kinds."""
        self._protocol = protocol
        self._others = others
        self._memberships: Mapping[type[Group], ClassicMembership[Any]] = {ClassicGroup: protocol, **others}
        self._config = config
        self._locks = locks
        self._shards = shards

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        """JoinGroup: returns with the next generation."""
        if not group_id:
            raise InvalidGroupIdError("a group id is needed to join")
        if not self._config.min_session_timeout_ms <= request.session_timeout_ms <= self._config.max_session_timeout_ms:
            raise InvalidSessionTimeoutError(
                f"{request.session_timeout_ms} ms lies outside {self._config.min_session_timeout_ms} to "
                f"{self._config.max_session_timeout_ms} ms"
            )
        with _naming_no_member():
            async with self._locks.exclusively(group_id):
                shard = self._shards.of(group_id)
                other = shard.groups.get(group_id)
                if other is not None and shard.find(group_id, ClassicGroup) is None:
                    membership = self._others.get(type(other))
                    if other.members and membership is not None:
                        return await membership.join(other, request)
                    if not other.gives_way_to(ClassicGroup.kind):
                        raise InconsistentGroupProtocolError(f"group {group_id} is a share group or a streams group")
                    if not request.member_id:
                        # An empty group of another protocol gives way to the classic one; its offsets stay.
                        with trio.CancelScope(shield=True):
                            await self._shards.write(group_id, other.tombstones())
        # No other task runs between here and the join's first wait.
        return await self._protocol.join(self._joined_group(group_id, request), request)

    def _joined_group(self, group_id: str, request: JoinRequest) -> ClassicGroup:
        """The classic group to join; it is created for a new member."""
        shard = self._shards.of(group_id)
        group = shard.find(group_id, ClassicGroup)
        if group is not None:
            return group
        if request.member_id:
            raise UnknownMemberIdError(f"no member {request.member_id}: there is no classic group {group_id}")
        if group_id in shard.groups:
            raise CoordinatorNotAvailableError(f"group {group_id} moved away and came back")
        group = shard.groups[group_id] = self._protocol.create(group_id)
        self._protocol.store_empty(group)
        return group

    async def sync(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
    ) -> SyncResult:
        """SyncGroup: returns with this member's assignment."""
        group, membership = self._membership(group_id)
        request = SyncRequest(member_id, group_instance_id, generation_id, protocol_type, protocol_name, assignments)
        return await membership.sync(group, request)

    def heartbeat(self, group_id: str, *, member_id: str, group_instance_id: str | None, generation_id: int) -> None:
        """Heartbeat: extends the session, or raises the error that tells the member what to do."""
        group, membership = self._membership(group_id)
        membership.heartbeat(
            group, member_id=member_id, group_instance_id=group_instance_id, generation_id=generation_id
        )

    async def leave(self, group_id: str, member_id: str, group_instance_id: str | None) -> str:
        """LeaveGroup of one member, of either protocol; returns the id of the member that left."""
        async with self._locks.exclusively(group_id):
            group, membership = self._membership(group_id)
            return await membership.leave(group, member_id, group_instance_id)

    def _membership(self, group_id: str) -> tuple[Group, ClassicMembership[Any]]:
        """A group with members of the classic protocol, and how they are served."""
        if not group_id:
            raise InvalidGroupIdError("a group id is needed")
        group = self._shards.of(group_id).groups.get(group_id)
        membership = None if group is None else self._memberships.get(type(group))
        if group is None or membership is None:
            raise UnknownMemberIdError(f"group {group_id} does not exist")
        return group, membership

    def describe(self, group_id: str) -> ClassicGroup:
        """The group as it is now. Raises GroupIdNotFoundError."""
        shard = self._shards.of(group_id)
        group = shard.find(group_id, ClassicGroup)
        if group is None and group_id in shard.groups:
            raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")
        if group is None or group.is_in(ClassicState.DEAD):
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group
