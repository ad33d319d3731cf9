"""What groups have in common whose members speak by one heartbeat: consumer, share and streams groups. Plain state.

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


class ModernMember(Generic[S, C]):
    """One member: what it said of itself, and where it stands. Its deadlines are on Trio's clock.

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

    def __init__(self, group_id: str, *, first_epoch: int = 0) -> None:
        self.group_id = group_id
        self.group_epoch = first_epoch
        self.metadata_hash = 0
        self.target_epoch = first_epoch
        self.target_timestamp_ms = 0
        """When the target was computed; 0 if it never was, or not to be taken into account."""
        self.members: dict[str, M] = {}
        self.target: dict[str, T] = {}
        self.founding: Sequence[CoordinatorRecord] = ()
        """What is written before its first record: the end of the empty classic group that it takes the place of."""
        self.removed = False
        """The group is not this broker's any more, or deleted."""

    def may_assign(self, now_ms: int, interval_ms: int) -> bool:
        """Many who join at once share one new target: `group.….assignment.interval.ms` lies between two."""
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
    def no_target(self) -> T:
        """The target of a member that has none."""

    @abstractmethod
    def _new_member(self, member_id: str) -> M:
        """A member of which nothing is known yet."""

    @abstractmethod
    def _new_current(self) -> C:
        """Where a member stands that has only come."""

    def _hold(self, member: M) -> None:
        """What a member has is its own from now on."""

    def _release(self, member: M) -> None:
        """What a member has is not its own any more."""

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
        # Compaction may leave what a member said of itself behind where it stands.
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
