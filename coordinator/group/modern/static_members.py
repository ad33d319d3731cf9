"""Static members of consumer and streams groups (`group.instance.id`, KIP-345): one rule for both kinds.

An instance id belongs to one member at a time. A member may leave temporarily (epoch -2): until its session ends it
keeps its assignment, and a member that joins with the same instance id replaces it under a new member id, without a
rebalance. The error messages are those of Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ottla.coordinator.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from ottla.coordinator.group.modern.group import JOIN_EPOCH, ModernGroup, ModernMember

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LEAVE_STATIC_EPOCH: Final = -2


class _Subscription(Protocol):
    @property
    def instance_id(self) -> str | None: ...


class _Current(Protocol):
    @property
    def epoch(self) -> int: ...

    @property
    def previous_epoch(self) -> int: ...


S = TypeVar("S", bound=_Subscription)
C = TypeVar("C", bound=_Current)
M = TypeVar("M", bound="StaticMember[Any, Any]")
T = TypeVar("T")


class StaticMember(ModernMember[S, C]):
    """A member that may be a static one."""

    __slots__ = ()

    @property
    def has_left(self) -> bool:
        """A static member that is expected back."""
        return self.current.epoch == LEAVE_STATIC_EPOCH

    @property
    def gives_way(self) -> bool:
        """Whether another member may take its instance id."""
        return self.has_left

    def _check_epoch(self, kind: str, epoch: int, holds_what_it_owns: Callable[[], bool]) -> None:
        """A heartbeat must carry the current epoch, the previous one if the answer to it was lost, or that of a join.

        With the previous one it says what the member owns, which must be part of what it has. Raises
        FencedMemberEpochError.
        """
        current = self.current
        if epoch in (JOIN_EPOCH, current.epoch):
            return
        if epoch == current.previous_epoch and epoch < current.epoch and holds_what_it_owns():
            return
        than = "greater" if epoch > current.epoch else "smaller"
        raise FencedMemberEpochError(
            f"The {kind} group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
            f"({current.epoch}). The member must abandon all its partitions and rejoin."
        )


class StaticGroup(ModernGroup[M, S, C, T]):
    """A group whose members may be static ones."""

    __slots__ = ("_static_members",)

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self._static_members: dict[str, str] = {}

    @property
    def static_members(self) -> Mapping[str, str]:
        """The member id of each instance id."""
        return self._static_members

    def holder(self, instance_id: str | None) -> M | None:
        """The member that has an instance id."""
        return None if instance_id is None else self.members.get(self._static_members.get(instance_id, ""))

    def find_static(self, member_id: str, instance_id: str | None) -> M:
        """The member that a request speaks for.

        Raises UnknownMemberIdError, or FencedInstanceIdError if another member has the instance id.
        """
        if instance_id is None:
            return self.find_member(member_id)
        holder = self.holder(instance_id)
        if holder is None:
            raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
        if holder.member_id != member_id:
            raise FencedInstanceIdError(
                f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}."
            )
        return holder

    def find_joining(self, member_id: str, instance_id: str | None, max_size: int) -> M | None:
        """The member that joins again, or whose place a static one takes; None for a new one.

        Who takes a place needs none of its own (`max_size`). Raises UnreleasedInstanceIdError or
        GroupMaxSizeReachedError.
        """
        holder = self.holder(instance_id)
        if holder is not None:
            if not holder.gives_way:
                raise UnreleasedInstanceIdError(
                    f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                    f"instance id is owned by {holder.member_id} member."
                )
            return holder
        if len(self.members) >= max_size and member_id not in self.members:
            raise GroupMaxSizeReachedError(
                f"The {self.kind} group has reached its maximum capacity of {max_size} members."
            )
        return self.members.get(member_id)

    def replay_member(self, member_id: str, subscription: S | None) -> None:
        former = self.members.get(member_id)
        before = None if former is None else former.subscription.instance_id
        super().replay_member(member_id, subscription)
        if before is not None and self._static_members.get(before) == member_id:
            del self._static_members[before]
        if subscription is not None and subscription.instance_id is not None:
            self._static_members[subscription.instance_id] = member_id
