"""What requests do to groups of the classic protocol: find or found the group. A member of a group of the consumer
protocol is served there.

Whatever is refused is a CoordinatorError.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from ottla.server.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    UnknownMemberIdError,
)
from ottla.server.coordinator.group import consumer_records, streams_records
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicState
from ottla.server.coordinator.group.consumer_group import ConsumerGroup
from ottla.server.coordinator.group.migration import MigrationPolicy
from ottla.server.coordinator.group.share_group import ShareGroup
from ottla.server.coordinator.group.streams_group import StreamsGroup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from ottla.server.coordinator.group.classic import ClassicProtocol, JoinRequest
    from ottla.server.coordinator.group.classic_group import JoinResult, SyncResult
    from ottla.server.coordinator.group.classic_members import ClassicMembers
    from ottla.server.coordinator.group.config import GroupConfig
    from ottla.server.coordinator.group.consumer import ConsumerProtocol
    from ottla.server.coordinator.group.locks import GroupLocks
    from ottla.server.coordinator.group.shard import GroupShard
    from ottla.server.coordinator.replay import CoordinatorRecord
    from ottla.storage.clock import Clock


@contextmanager
def _naming_no_member() -> Iterator[None]:
    """A JoinGroup that is refused here is answered without a member id, as by Kafka outside classic groups."""
    try:
        yield
    except CoordinatorError as error:
        error.member_id = error.member_id or ""
        raise


class ClassicGroups:
    """The classic groups of one broker, and the classic members of its other groups."""

    def __init__(
        self,
        protocol: ClassicProtocol,
        members: ClassicMembers,
        consumer: ConsumerProtocol,
        *,
        config: GroupConfig,
        clock: Clock,
        locks: GroupLocks,
        find_shard: Callable[[str], GroupShard],
        write: Callable[[str, Sequence[CoordinatorRecord]], Awaitable[None]],
    ) -> None:
        """`members` and `consumer` serve members of groups of the consumer protocol; `find_shard` gives the partition
        that a group lives in, or raises; `write` commits records of a group.
        """
        self._protocol = protocol
        self._members = members
        self._consumer = consumer
        self._config = config
        self._clock = clock
        self._locks = locks
        self._shard = find_shard
        self._write = write

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
                group = self._shard(group_id).groups.get(group_id)
                if isinstance(group, ConsumerGroup):
                    if group.members:
                        return await self._join_consumer_group(group, request)
                    # An empty group of the consumer protocol gives way to the classic one; its offsets stay.
                    with trio.CancelScope(shield=True):
                        await self._write(group_id, consumer_records.group_tombstones(group))
                elif isinstance(group, StreamsGroup) and not group.members:
                    with trio.CancelScope(shield=True):
                        await self._write(group_id, streams_records.group_tombstones(group))
                elif isinstance(group, ShareGroup | StreamsGroup):
                    raise InconsistentGroupProtocolError(f"group {group_id} is a share group or a streams group")
        # No other task runs between here and the join's first wait.
        return await self._protocol.join(self._joined_group(group_id, request), request)

    async def _join_consumer_group(self, group: ConsumerGroup, request: JoinRequest) -> JoinResult:
        if self._config.consumer_migration_policy is MigrationPolicy.DISABLED:
            raise InconsistentGroupProtocolError(
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the group "
                "migration is disabled."
            )
        return await self._members.join(group, request)

    def _joined_group(self, group_id: str, request: JoinRequest) -> ClassicGroup:
        """The classic group to join; it is created for a new member."""
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup | ShareGroup | StreamsGroup):
            raise CoordinatorNotAvailableError(f"group {group_id} moved away and came back")
        if group is None:
            if request.member_id:
                raise UnknownMemberIdError(f"no member {request.member_id}: group {group_id} does not exist")
            group = shard.groups[group_id] = ClassicGroup(group_id, now_ms=self._clock.time_ms())
            self._protocol.found(group)
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
        consumer_group = self._consumer_group(group_id)
        if consumer_group is not None:
            return self._members.sync(
                consumer_group,
                member_id=member_id,
                group_instance_id=group_instance_id,
                generation_id=generation_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
            )
        return await self._protocol.sync(
            self._member_group(group_id),
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation_id=generation_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments,
        )

    def heartbeat(self, group_id: str, *, member_id: str, group_instance_id: str | None, generation_id: int) -> None:
        """Heartbeat: extends the session, or raises the error that tells the member what to do."""
        consumer_group = self._consumer_group(group_id)
        if consumer_group is not None:
            self._members.heartbeat(
                consumer_group,
                member_id=member_id,
                group_instance_id=group_instance_id,
                generation_id=generation_id,
            )
            return
        self._protocol.heartbeat(
            self._member_group(group_id),
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation_id=generation_id,
        )

    async def leave(self, group_id: str, member_id: str, group_instance_id: str | None) -> str:
        """LeaveGroup of one member, of either protocol; returns the id of whoever left."""
        async with self._locks.exclusively(group_id):
            consumer_group = self._consumer_group(group_id)
            if consumer_group is not None:
                return await self._consumer.expel(consumer_group, member_id, group_instance_id)
            return self._protocol.leave(self._member_group(group_id), member_id, group_instance_id)

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        return self._shard(group_id).consumer_group(group_id) if group_id else None

    def _member_group(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise InvalidGroupIdError("a group id is needed")
        group = self._shard(group_id).classic_group(group_id)
        if group is None:
            raise UnknownMemberIdError(f"group {group_id} does not exist")
        return group

    def describe(self, group_id: str) -> ClassicGroup:
        """The group as it is now. Raises GroupIdNotFoundError."""
        group = self._shard(group_id).groups.get(group_id)
        if isinstance(group, ConsumerGroup | ShareGroup | StreamsGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")
        if group is None or group.is_in(ClassicState.DEAD):
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group
