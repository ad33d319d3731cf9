"""Common state of consumer, share and streams groups, whose members use a single heartbeat API. Plain state.

All of it comes from records: `replay` is called with what is committed, at load and after each write. Kafka's
counterparts are ModernGroup and ModernGroupMember.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from ottla.coordinator.errors import UnknownMemberIdError, UnsupportedCommitError
from ottla.coordinator.group.group import Committer, Group
from ottla.coordinator.group.modern.records import ModernRecords, tombstone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
    from ottla.coordinator.replay import CoordinatorRecord
    from ottla.kproto.internal_records.coordinator import CoordinatorKey

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

    def expect_by(self, deadline: float) -> None:
        """Set the deadline for what the rebalance asks of the member."""
        self.rebalance_deadline = deadline

    def expect_nothing(self) -> None:
        """It has nothing to do for a rebalance: only its session counts."""
        self.rebalance_deadline = float("inf")

    def remove(self) -> None:
        """It is no longer a member, or is watched elsewhere: its session ends here."""
        self.removed = True


class ModernGroup(Group, Generic[M, S, C, T]):
    """One group, as its committed records describe it."""

    __slots__ = (
        "group_epoch",
        "group_id",
        "members",
        "metadata_hash",
        "predecessor_tombstones",
        "removed",
        "target",
        "target_epoch",
        "target_timestamp_ms",
    )

    record_types: ClassVar[ModernRecords]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = EPOCH_BEFORE_MEMBERS
        self.metadata_hash = 0
        self.target_epoch = EPOCH_BEFORE_MEMBERS
        self.target_timestamp_ms = 0
        """The time at which the target was computed; 0 if it never was, or if that must not delay the next one."""
        self.members: dict[str, M] = {}
        self.target: dict[str, T] = {}
        self.predecessor_tombstones: Sequence[CoordinatorRecord] = ()
        """The tombstones of the empty group that it replaces, written before its first record."""
        self.removed = False
        """Whether the group was deleted or has moved to another broker."""

    def replace(self, predecessor_tombstones: Sequence[CoordinatorRecord]) -> None:
        """Its first record removes the empty group that has its id now."""
        self.predecessor_tombstones = predecessor_tombstones

    def begun(self) -> None:
        """Its first records are written."""
        self.predecessor_tombstones = ()

    def remove(self) -> None:
        """It was deleted or has moved to another broker."""
        self.removed = True

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

    @property
    def protocol_type(self) -> str:
        """Of the newer protocols each has one type of members, and Kafka calls it as the kind."""
        return self.kind

    def validate_offset_commit(self, committer: Committer, offsets: Mapping[TopicPartition, OffsetToCommit]) -> None:
        """Whether somebody may commit these offsets. Raises CoordinatorError."""
        member_id, epoch = committer.member_id, committer.generation_id
        # Without an epoch: an administrator while nobody is in the group, or a producer that names no member.
        if epoch < 0 and (not self.members or (committer.is_transactional and not member_id)):
            return
        member = self.find_member(member_id)
        if not committer.knows_epochs and not committer.is_transactional and self._has_epochs(member):
            raise UnsupportedCommitError(f"{member_id} commits in a version that has no member epochs")
        self._validate_commit(member_id, epoch, offsets)

    # What the protocols differ in

    def _has_epochs(self, member: M) -> bool:
        """Whether the member speaks of epochs, not of generations."""
        return True

    def _validate_commit(
        self, member_id: str, member_epoch: int, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> None:
        """Whether a member may commit with an epoch."""

    @property
    @abstractmethod
    def no_target(self) -> T:
        """The target of a member that has none."""

    @abstractmethod
    def _new_member(self, member_id: str) -> M:
        """A member about which nothing is known yet."""

    @abstractmethod
    def _new_current(self) -> C:
        """The current assignment of a member that has just joined."""

    def _hold(self, member: M) -> None:
        """The member now owns what it holds."""

    def _release(self, member: M) -> None:
        """The member no longer owns what it held."""

    @abstractmethod
    def _replay_own(self, key: Any, value: Any) -> None:
        """Apply a record of the type that only this kind has."""

    def _own_keys(self) -> Sequence[CoordinatorKey]:
        """The keys of the group's own records that its removal names, after those of members and target."""
        return [self.record_types.group(group_id=self.group_id)]

    # Records

    @classmethod
    def key_types(cls) -> tuple[type, ...]:
        return cls.record_types.key_types

    def tombstones(self) -> list[CoordinatorRecord]:
        group_id = self.group_id
        return [
            *(each for member_id in self.members for each in self.record_types.member_tombstones(group_id, member_id)),
            tombstone(self.record_types.target_epoch(group_id=group_id)),
            *map(tombstone, self._own_keys()),
        ]

    def replay(self, key: Any, value: Any) -> None:
        """Apply one record of the group; the removal of the group itself is the caller's."""
        records, kind = self.record_types, type(key)
        if kind is records.group:
            self._replay_metadata(value)
        elif kind is records.member:
            self.replay_member(key.member_id, None if value is None else records.read_member(value))
        elif kind is records.target_epoch:
            self.target_epoch = EPOCH_BEFORE_MEMBERS if value is None else value.assignment_epoch
            self.target_timestamp_ms = 0 if value is None else value.assignment_timestamp
        elif kind is records.target:
            self.replay_target(key.member_id, None if value is None else records.read_target(value))
        elif kind is records.current:
            self.replay_current(key.member_id, None if value is None else records.read_current(value))
        else:
            self._replay_own(key, value)

    def _replay_metadata(self, value: Any) -> None:
        self.group_epoch = 0 if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def replay_member(self, member_id: str, subscription: S | None) -> None:
        if subscription is None:
            member = self.members.pop(member_id, None)
            if member is not None:
                self._release(member)
                member.remove()
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
