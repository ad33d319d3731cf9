"""A share group (KIP-932): its epochs, members, assignments, and whose delivery state is set up. Plain state.

All of it comes from records: `replay_…` is called with what is committed, at load and after each write.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.server.coordinator.errors import FencedMemberEpochError
from ottla.server.coordinator.group.assignors import EMPTY_ASSIGNMENT, Assignment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

PROTOCOL_TYPE: Final = "share"
ASSIGNOR_NAME: Final = "simple"


class ShareGroupState(Enum):
    """Values are the names that the administrative APIs answer with."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareSubscription(NamedTuple):
    """What a member said of itself: the content of its metadata record."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()


class ShareCurrent(NamedTuple):
    """Where a member stands: the content of its current-assignment record."""

    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = EMPTY_ASSIGNMENT


class ShareMember:
    """One member. Its deadline is on Trio's clock."""

    __slots__ = ("current", "deadline", "member_id", "removed", "subscription")

    def __init__(self, member_id: str, subscription: ShareSubscription) -> None:
        self.member_id = member_id
        self.subscription = subscription
        self.current = ShareCurrent()
        self.deadline = float("inf")
        self.removed = False

    def check_epoch(self, epoch: int) -> None:
        """A heartbeat's epoch: the current one, or the one before if its answer was lost; any that joins is good."""
        current = self.current
        if epoch == JOIN_EPOCH or epoch in (current.epoch, current.previous_epoch):
            return
        known = f"known by the group coordinator ({current.epoch})"
        if epoch > current.epoch:
            raise FencedMemberEpochError(
                f"The share group member has a greater member epoch ({epoch}) than the one {known}. "
                "The member must abandon all its partitions and rejoin."
            )
        raise FencedMemberEpochError(
            f"The share group member has a smaller member epoch ({epoch}) than the one {known}. "
            "The member must abandon all its partitions and rejoin."
        )


class TopicPartitions(NamedTuple):
    """Partitions of a topic, with the name that it has now."""

    name: str
    partitions: frozenset[int]


class StatePartitions(NamedTuple):
    """The partitions whose delivery state is being set up, is set up, or goes with its topic: one record's content."""

    initializing: Mapping[UUID, TopicPartitions] = {}
    initialized: Mapping[UUID, TopicPartitions] = {}
    deleting: Mapping[UUID, str] = {}

    def beginning(self, begun: Mapping[UUID, TopicPartitions]) -> StatePartitions:
        """With partitions that are now being set up."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in begun}
        return StatePartitions(_with(self.initializing, begun), self.initialized, deleting)

    def begun(self, done: Mapping[UUID, TopicPartitions]) -> StatePartitions:
        """With partitions that are set up now."""
        return StatePartitions(_without(self.initializing, done), _with(self.initialized, done), self.deleting)

    def given_up(self, failed: Mapping[UUID, TopicPartitions]) -> StatePartitions:
        """Without partitions that could not be set up."""
        return self._replace(initializing=_without(self.initializing, failed))

    def ending(self, topics: Mapping[UUID, str]) -> StatePartitions:
        """With topics whose state goes."""
        left = self.without(topics)
        return left._replace(deleting={**self.deleting, **topics})

    def without(self, topics: Mapping[UUID, object]) -> StatePartitions:
        """Without any trace of topics."""
        return StatePartitions(
            {topic_id: each for topic_id, each in self.initializing.items() if topic_id not in topics},
            {topic_id: each for topic_id, each in self.initialized.items() if topic_id not in topics},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics},
        )

    def topics(self) -> dict[UUID, str]:
        """All topics that are named, with their names."""
        named = {topic_id: each.name for topic_id, each in (*self.initializing.items(), *self.initialized.items())}
        return {**self.deleting, **named}

    def partitions(self) -> Iterator[tuple[UUID, int]]:
        """All partitions of which there may be delivery state."""
        known: dict[UUID, set[int]] = {}
        for topic_id, each in (*self.initializing.items(), *self.initialized.items()):
            known.setdefault(topic_id, set()).update(each.partitions)
        for topic_id, indexes in known.items():
            for index in sorted(indexes):
                yield topic_id, index


def _with(some: Mapping[UUID, TopicPartitions], more: Mapping[UUID, TopicPartitions]) -> dict[UUID, TopicPartitions]:
    joined = dict(some)
    for topic_id, (name, partitions) in more.items():
        known = joined.get(topic_id)
        joined[topic_id] = TopicPartitions(name, partitions if known is None else known.partitions | partitions)
    return joined


def _without(some: Mapping[UUID, TopicPartitions], less: Mapping[UUID, TopicPartitions]) -> dict[UUID, TopicPartitions]:
    left = {}
    for topic_id, (name, partitions) in some.items():
        remaining = partitions - less[topic_id].partitions if topic_id in less else partitions
        if remaining:
            left[topic_id] = TopicPartitions(name, remaining)
    return left


class ShareGroup:
    """One group, as its committed records describe it."""

    __slots__ = (
        "group_epoch",
        "group_id",
        "initializing_since_ms",
        "members",
        "metadata_hash",
        "removed",
        "state_partitions",
        "target",
        "target_epoch",
        "target_timestamp_ms",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_timestamp_ms = 0
        self.removed = False
        """The group is not this broker's any more, or deleted."""
        self.members: dict[str, ShareMember] = {}
        self.target: dict[str, Assignment] = {}
        self.state_partitions = StatePartitions()
        self.initializing_since_ms: dict[UUID, int] = {}
        """When each topic that is being set up was begun with here; not stored: a new coordinator begins again."""

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def target_of(self, member_id: str) -> Assignment:
        return self.target.get(member_id, EMPTY_ASSIGNMENT)

    def may_assign(self, now_ms: int, interval_ms: int) -> bool:
        """Many who join at once share one new target: `group.share.assignment.interval.ms` lies between two."""
        since_ms = now_ms - self.target_timestamp_ms
        return not self.target_timestamp_ms or not 0 <= since_ms < interval_ms

    # Replay

    def replay_member(self, member_id: str, subscription: ShareSubscription | None) -> None:
        if subscription is None:
            member = self.members.pop(member_id, None)
            if member is not None:
                member.removed = True
            return
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ShareMember(member_id, subscription)
        member.subscription = subscription

    def replay_current(self, member_id: str, current: ShareCurrent | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if current is None:
                return
            # Compaction may leave what a member said of itself behind where it stands.
            member = self.members[member_id] = ShareMember(member_id, ShareSubscription())
        member.current = ShareCurrent() if current is None else current

    def replay_target(self, member_id: str, assignment: Assignment | None) -> None:
        if assignment is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = assignment
