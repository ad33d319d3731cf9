"""A group of the consumer protocol (KIP-848): its epochs, members, target and current assignments. Plain state.

All of it comes from records: `replay_…` is called with what is committed, at load and after each write. The group's
state is derived, never stored:

    EMPTY        no members
    ASSIGNING    the target assignment is older than the group
    RECONCILING  some member has not reached its target yet
    STABLE       everyone has
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from ottla.server.coordinator.errors import FencedMemberEpochError, StaleMemberEpochError, UnknownMemberIdError
from ottla.server.coordinator.group.assignors import DEFAULT_ASSIGNOR, EMPTY_ASSIGNMENT, Assignment

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2


class ConsumerGroupState(Enum):
    """Values are the names that the administrative APIs answer with."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """How far a member is with its target; the numbers are those of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class Subscription(NamedTuple):
    """What a member said of itself: the content of its metadata record."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None


class Current(NamedTuple):
    """Where a member stands: the content of its current-assignment record."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = EMPTY_ASSIGNMENT
    pending_revocation: Assignment = EMPTY_ASSIGNMENT


class ConsumerMember:
    """One member. `deadline` (of its session) and `revocation_deadline` are on Trio's clock."""

    __slots__ = ("current", "deadline", "member_id", "removed", "revocation_deadline", "subscription")

    def __init__(self, member_id: str, subscription: Subscription) -> None:
        self.member_id = member_id
        self.subscription = subscription
        self.current = Current()
        self.deadline = float("inf")
        self.revocation_deadline = float("inf")
        self.removed = False

    @property
    def has_left(self) -> bool:
        """A static member that is expected back (epoch -2)."""
        return self.current.epoch == LEAVE_STATIC_EPOCH


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched at `version` of the metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """One group, as its committed records describe it."""

    __slots__ = (
        "checked_version",
        "group_epoch",
        "group_id",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "static_members",
        "target",
        "target_epoch",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.checked_version = -1
        """The revision of the cluster's metadata at which the group's topics were last looked at."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
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

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer."""
        preferred = Counter(
            member.subscription.server_assignor
            for member in self.members.values()
            if member.subscription.server_assignor is not None
        )
        return min(preferred, key=lambda name: (-preferred[name], name)) if preferred else DEFAULT_ASSIGNOR

    def subscribed_topics(self, subscription: Subscription) -> frozenset[str]:
        """The topics of one subscription by name: those named, and those that its expression matched."""
        resolved = self.regexes.get(subscription.topic_regex) if subscription.topic_regex else None
        return subscription.topic_names if resolved is None else subscription.topic_names | resolved.topics

    def all_subscribed_topics(self) -> frozenset[str]:
        found: set[str] = set()
        for member in self.members.values():
            found |= self.subscribed_topics(member.subscription)
        return frozenset(found)

    def target_of(self, member: ConsumerMember) -> Assignment:
        return self.target.get(member.member_id, EMPTY_ASSIGNMENT)

    def validate_member(self, member_id: str, member_epoch: int) -> ConsumerMember:
        """The member that commits or fetches offsets. Raises UnknownMemberIdError or StaleMemberEpochError."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"no member {member_id} in group {self.group_id}")
        if member.current.epoch != member_epoch:
            raise StaleMemberEpochError(f"{member_id} is at epoch {member.current.epoch}, not {member_epoch}")
        return member

    def check_epoch(self, member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
        """A heartbeat's epoch: the current one, or the one before if its answer was lost on the way."""
        current = member.current
        if epoch == current.epoch:
            return
        lost_answer = (
            epoch < current.epoch
            and epoch == current.previous_epoch
            and owned is not None
            and all(partitions <= current.assigned.get(topic, frozenset()) for topic, partitions in owned.items())
        )
        if not lost_answer:
            raise FencedMemberEpochError(f"{member.member_id} is at epoch {current.epoch}, not {epoch}")

    # Replay

    def replay_member(self, member_id: str, subscription: Subscription | None) -> None:
        member = self.members.get(member_id)
        if subscription is None:
            if member is not None:
                self._release(member)
                member.removed = True
                del self.members[member_id]
                instance_id = member.subscription.instance_id
                if instance_id is not None and self.static_members.get(instance_id) == member_id:
                    del self.static_members[instance_id]
            return
        if member is None:
            member = self.members[member_id] = ConsumerMember(member_id, subscription)
        member.subscription = subscription
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id

    def replay_current(self, member_id: str, current: Current | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        self._release(member)
        member.current = Current() if current is None else current
        for partition in held(member.current):
            self.owners[partition] = member_id

    def replay_target(self, member_id: str, assignment: Assignment | None) -> None:
        if assignment is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = assignment

    def _release(self, member: ConsumerMember) -> None:
        for partition in held(member.current):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]


def held(current: Current) -> Iterable[tuple[UUID, int]]:
    """The partitions that a member holds until it says otherwise."""
    for assignment in (current.assigned, current.pending_revocation):
        for topic_id, indexes in assignment.items():
            for index in indexes:
                yield topic_id, index
