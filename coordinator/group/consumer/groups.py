"""Requests to groups of the consumer protocol (KIP-848): find, create or convert the group, under its lock.

Refusals are CoordinatorErrors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.protocol import Heartbeat, check_expression
from ottla.coordinator.group.modern.group import JOIN_EPOCH
from ottla.coordinator.group.modern.groups import ModernGroups
from ottla.coordinator.group.modern.heartbeat import HeartbeatResult

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.protocol import ConsumerProtocol
    from ottla.coordinator.group.group import Group
    from ottla.coordinator.group.locks import GroupLocks
    from ottla.coordinator.group.shard.shards import GroupShards


class Conversion(Protocol):
    """Converts classic groups into groups of the consumer protocol. The caller holds the group's lock."""

    async def upgrade(self, group: ClassicGroup) -> ConsumerGroup:
        """Returns the group, whose sessions do not run yet. Raises CoordinatorError, and then it is as it was."""

    async def turn_back(self, group: ConsumerGroup) -> None:
        """Undo an upgrade for a member that did not join."""


class ConsumerGroups(ModernGroups[ConsumerGroup, Heartbeat, HeartbeatResult]):
    """The groups of the consumer protocol of one broker."""

    def __init__(
        self,
        protocol: ConsumerProtocol,
        conversion: Conversion,
        locks: GroupLocks,
        shards: GroupShards,
    ) -> None:
        super().__init__(protocol, locks, shards)
        self._conversion = conversion

    async def _heartbeat_elsewhere(self, other: Group, beat: Heartbeat) -> HeartbeatResult:
        """Turn a classic group with members into one of the consumer protocol, for the member that joins.

        If the member is refused, or its client goes away first, the group is turned back: nobody in it would speak the
        consumer protocol.
        """
        classic = self._shards.of(other.group_id).find(other.group_id, ClassicGroup)
        if classic is None:
            raise self._is_of_another_kind(other)
        if beat.member_epoch != JOIN_EPOCH:
            raise self._not_found(other.group_id)
        # Before the others are disturbed.
        check_expression(None, beat)
        upgraded = await self._conversion.upgrade(classic)
        self._protocol.resume(upgraded)
        try:
            return await self._protocol.heartbeat(upgraded, beat)
        except BaseException:
            if not upgraded.removed:
                await self._conversion.turn_back(upgraded)
            raise
