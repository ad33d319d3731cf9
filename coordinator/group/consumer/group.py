"""A group of the consumer protocol (KIP-848): its epochs, members, target and current assignments. Plain state.

All of it comes from records: `replay` is called with what is committed, at load and after each write. The group's
state is derived, never stored:

    EMPTY        no members
    ASSIGNING    the target assignment is older than the group
    RECONCILING  some member has not reached its target yet
    STABLE       everyone has
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from ottla.coordinator.errors import IllegalGenerationError, StaleMemberEpochError
from ottla.coordinator.group.assignment import EMPTY_ASSIGNMENT, Assignment
from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.assignors import ASSIGNORS
from ottla.coordinator.group.consumer.member import (
    ConsumerMember,
    Current,
    MemberState,
    ResolvedRegex,
    Subscription,
    held,
)
from ottla.coordinator.group.group import OffsetExpiry
from ottla.coordinator.group.modern.static_members import StaticGroup
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.kproto.internal_records.coordinator import CoordinatorKey


class ConsumerConfig(NamedTuple):
    """`group.consumer.session.timeout.ms`, `.heartbeat.interval.ms`, `.max.size`, `.assignment.interval.ms` and
    `.assignors` by their short names.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    assignment_interval_ms: int = 0
    assignors: tuple[str, ...] = tuple(ASSIGNORS)


class ConsumerGroupState(Enum):
    """Values are the names that the administrative APIs answer with."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


def preferred_assignor(subscriptions: Iterable[Subscription], offered: Sequence[str]) -> str:
    """The assignor of those that are offered which most members prefer; of several the first, as where nobody does."""
    named = (each.server_assignor for each in subscriptions)
    votes = Counter(name for name in named if name is not None and name in offered)
    return min(votes, key=lambda name: (-votes[name], offered.index(name)), default=offered[0])


class ConsumerGroup(StaticGroup[ConsumerMember, Subscription, Current, Assignment]):
    """One group, as its committed records describe it."""

    __slots__ = ("checked_version", "owners", "regexes")

    kind = "consumer"
    gives_way = frozenset({"classic"})
    record_types = records.RECORDS

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.checked_version = -1
        """The revision of the cluster's metadata at which the group's topics were last looked at."""
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[UUID, int], str] = {}
        """Who holds a partition now, assigned or not yet revoked: nobody else may get it until it is released."""

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        for member in self.members.values():
            if member.current.epoch != self.target_epoch or member.current.state is not MemberState.STABLE:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    def checked(self, version: int) -> None:
        """The group's topics were looked at, at this revision of the metadata."""
        self.checked_version = version

    def assignor(self, offered: Sequence[str]) -> str:
        """The assignor of those that most members prefer, or else the first."""
        return preferred_assignor((member.subscription for member in self.members.values()), offered)

    def subscribed_topics(self, subscription: Subscription) -> frozenset[str]:
        """The topics of one subscription by name: those named, and those that its expression matched."""
        resolved = self.regexes.get(subscription.topic_regex) if subscription.topic_regex else None
        return subscription.topic_names if resolved is None else subscription.topic_names | resolved.topics

    def all_subscribed_topics(self) -> frozenset[str]:
        found: set[str] = set()
        for member in self.members.values():
            found |= self.subscribed_topics(member.subscription)
        return frozenset(found)

    # Offsets

    def validate_offset_fetch(self, member_id: str, member_epoch: int) -> None:
        """Raises UnknownMemberIdError, StaleMemberEpochError, or IllegalGenerationError for a classic member."""
        member = self.find_member(member_id)
        if member.current.epoch != member_epoch:
            raise _stale(member, f"{member_id} is at epoch {member.current.epoch}, not {member_epoch}")

    def undeletable_topics(self) -> frozenset[str]:
        return self.all_subscribed_topics()

    def offset_expiry(self) -> OffsetExpiry:
        return OffsetExpiry(None, self.all_subscribed_topics())

    def _has_epochs(self, member: ConsumerMember) -> bool:
        return member.classic is None

    def _validate_commit(
        self, member_id: str, member_epoch: int, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> None:
        """Whether a member may commit these offsets, also with an epoch before its current one.

        An older epoch is good for the partitions that the member has held since then (KIP-1251): a commit that was on
        its way while the epoch rose need not be repeated, and a zombie's is refused. Raises as `validate_offset_fetch`
        does.
        """
        member = self.find_member(member_id)
        current = member.current
        if member_epoch == current.epoch:
            return
        if member_epoch > current.epoch:
            raise _stale(member, f"epoch {member_epoch} is newer than the current epoch {current.epoch}")
        for key, offset in offsets.items():
            topic_id, index = offset.topic_id, key.partition
            epoch = current.epochs.get((topic_id, index))
            if epoch is None:
                raise _stale(member, f"partition {index} of {topic_id} is not assigned to {member_id}")
            if member_epoch < epoch:
                raise _stale(member, f"partition {index} of {topic_id} was assigned at epoch {epoch}")

    # Classic members

    def supports_classic(self, names: Iterable[str]) -> bool:
        """Whether a classic member with these protocols may join: all classic members share one of them. One that joins
        again counts with what it said before.
        """
        classic = (member.classic for member in self.members.values())
        said = [{name for name, _ in each.protocols} for each in classic if each is not None]
        return bool(set(names).intersection(*said))

    # Records

    @property
    def no_target(self) -> Assignment:
        return EMPTY_ASSIGNMENT

    def _own_keys(self) -> list[CoordinatorKey]:
        expressions = [self.record_types.own(group_id=self.group_id, regular_expression=each) for each in self.regexes]
        return [*expressions, *super()._own_keys()]

    def _replay_own(self, key: Any, value: Any) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = records.read_regex(value)

    def _new_member(self, member_id: str) -> ConsumerMember:
        return ConsumerMember(member_id, Subscription(), Current())

    def _new_current(self) -> Current:
        return Current()

    def _hold(self, member: ConsumerMember) -> None:
        for partition in held(member.current):
            self.owners[partition] = member.member_id

    def _release(self, member: ConsumerMember) -> None:
        for partition in held(member.current):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]


def _stale(member: ConsumerMember, why: str) -> StaleMemberEpochError | IllegalGenerationError:
    """How a member is told, in the terms of its protocol, that its epoch is wrong."""
    return StaleMemberEpochError(why) if member.classic is None else IllegalGenerationError(why)
