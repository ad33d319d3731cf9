"""What consumer, share and streams groups have in common, whose members use a single heartbeat API. Plain state.

All of it comes from records: `replay_…` is called with what is committed, at load and after each write. Kafka's
counterparts are ModernGroup and ModernGroupMember.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ottla.server.coordinator.errors import UnknownMemberIdError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.coordinator.replay import CoordinatorRecord

S = TypeVar("S")
C = TypeVar("C")
M = TypeVar("M", bound="ModernMember[Any, Any]")
T = TypeVar("T")

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
EPOCH_BEFORE_MEMBERS: Final = 1
"""A group that nobody has joined yet: its first member begins at epoch 2, as in Kafka's ModernGroup."""


class ModernMember(Generic[S, C]):
    """One member: what it said about itself, and where it stands. Its deadlines are on Trio's clock.

    `deadline` is that of its session; by `rebalance_deadline` it must have done what a rebalance asks of it now.
    """

    __slots__ = ("current", "deadline", "member_id", "rebalance_deadline", "removed", "subscription")

    def __init__(self, member_id: str, subscription: S, current: C) -> None:
        self.member_id = member_id
        self.subscription = subscription
        self.current = current
        self.deadline = float("inf")
        self.rebalance_deadline = float("inf")
        self.removed = False


class ModernGroup(ABC, Generic[M, S, C, T]):
    """One group, as its committed records describe it."""

    __slots__ = (
        "founding",
        "group_epoch",
        "group_id",
        "members",
        "metadata_hash",
        "removed",
        "target",
        "target_epoch",
        "target_timestamp_ms",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = EPOCH_BEFORE_MEMBERS
        self.metadata_hash = 0
        self.target_epoch = EPOCH_BEFORE_MEMBERS
        self.target_timestamp_ms = 0
        """When the target was computed; 0 if it never was, or if that must not delay the next one."""
        self.members: dict[str, M] = {}
        self.target: dict[str, T] = {}
        self.founding: Sequence[CoordinatorRecord] = ()
        """What is written before its first record: the tombstone of the empty classic group that it replaces."""
        self.removed = False
        """Whether the group was deleted or has moved to another broker."""

    def may_assign(self, now_ms: int, interval_ms: int) -> bool:
        """Whether a new target may be computed. `group.….assignment.interval.ms` must lie between two of them, so that
        members that join together share one.
        """
        since_ms = now_ms - self.target_timestamp_ms
        return not self.target_timestamp_ms or not 0 <= since_ms < interval_ms

    def target_of(self, member_id: str) -> T:
        return self.target.get(member_id, self.no_target)

    def find_member(self, member_id: str) -> M:
        """Raises UnknownMemberIdError."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    # What the protocols differ in

    @property
    @abstractmethod
    def kind(self) -> str:
        """What messages call a group of this protocol."""

    @property
    @abstractmethod
    def no_target(self) -> T:
        """The target of a member that has none."""

    @abstractmethod
    def _new_member(self, member_id: str) -> M:
        """A member about which nothing is known yet."""

    @abstractmethod
    def _new_current(self) -> C:
        """Where a member stands that has just joined."""

    def _hold(self, member: M) -> None:
        """The member now owns what it holds."""

    def _release(self, member: M) -> None:
        """The member no longer owns what it held."""

    # Replay

    def replay_member(self, member_id: str, subscription: S | None) -> None:
        if subscription is None:
            member = self.members.pop(member_id, None)
            if member is not None:
                self._release(member)
                member.removed = True
            return
        member = self._known(member_id)
        self._release(member)
        member.subscription = subscription
        self._hold(member)

    def replay_current(self, member_id: str, current: C | None) -> None:
        if current is None and member_id not in self.members:
            return
        # After compaction a member's subscription may come after its current assignment.
        member = self._known(member_id)
        self._release(member)
        member.current = self._new_current() if current is None else current
        self._hold(member)

    def replay_target(self, member_id: str, target: T | None) -> None:
        if target is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = target

    def _known(self, member_id: str) -> M:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = self._new_member(member_id)
        return member
