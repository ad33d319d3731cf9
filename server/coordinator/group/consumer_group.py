"""A group of the consumer protocol (KIP-848): its epochs, members, target and current assignments. Plain state.

All of it comes from records: `replay_…` is called with what is committed, at load and after each write. The group's
state is derived, never stored:

    EMPTY        no members
    ASSIGNING    the target assignment is older than the group
    RECONCILING  some member has not reached its target yet
    STABLE       everyone has
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from ottla.server.coordinator.errors import IllegalGenerationError, StaleMemberEpochError
from ottla.server.coordinator.group.assignors import ASSIGNORS, EMPTY_ASSIGNMENT, Assignment
from ottla.server.coordinator.group.classic_group import Protocol
from ottla.server.coordinator.group.static_members import LEAVE_STATIC_EPOCH, StaticGroup, StaticMember


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


class MemberState(IntEnum):
    """How far a member is with its target; the numbers are those of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ClassicSide(NamedTuple):
    """What a classic member said in its JoinGroup: during a migration it lives in a group of this protocol."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class Subscription(NamedTuple):
    """What a member said about itself: the content of its metadata record. `classic` is set for a classic member."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicSide | None = None


AssignmentEpochs = Mapping[tuple[UUID, int], int]
"""The epoch at which a member was given each partition that it holds (KIP-1251)."""

NO_EPOCHS: Final[AssignmentEpochs] = {}


class Current(NamedTuple):
    """Where a member stands: the content of its current-assignment record."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = EMPTY_ASSIGNMENT
    pending_revocation: Assignment = EMPTY_ASSIGNMENT
    epochs: AssignmentEpochs = NO_EPOCHS

    @property
    def held(self) -> Assignment:
        """What the member is assigned, and what it has not yet given up."""
        topic_ids = {*self.assigned, *self.pending_revocation}
        nothing: frozenset[int] = frozenset()
        return {
            topic_id: self.assigned.get(topic_id, nothing) | self.pending_revocation.get(topic_id, nothing)
            for topic_id in topic_ids
        }

    def rejoined(self) -> "Current":
        """Where a static member starts over: it keeps what it was assigned; what it was to revoke is free."""
        return Current(previous_epoch=0, assigned=self.assigned, epochs=self.epochs)

    def away(self) -> "Current":
        """Where a static member that goes away for a while stands: what it was to revoke is free, what it was assigned
        stays its own, and whoever comes back commits with any epoch.
        """
        return self._replace(
            epoch=LEAVE_STATIC_EPOCH, pending_revocation=EMPTY_ASSIGNMENT, epochs=dict.fromkeys(self.epochs, 0)
        )


class ConsumerMember(StaticMember[Subscription, Current]):
    """One member. By its `rebalance_deadline` it must have revoked partitions, or, if it is a classic member, joined or
    synced.
    """

    __slots__ = ()

    @property
    def classic(self) -> ClassicSide | None:
        """Set for a member that speaks the classic protocol."""
        return self.subscription.classic

    @property
    def gives_way(self) -> bool:
        """A classic member always did, to whoever joined with its instance id."""
        return self.has_left or self.classic is not None

    def check_epoch(self, epoch: int, owned: Assignment | None) -> None:
        """Whether a heartbeat with this epoch may be answered. Raises FencedMemberEpochError."""
        self._check_epoch("consumer", epoch, lambda: owned is not None and _contains(self.current.assigned, owned))


def preferred_assignor(subscriptions: Iterable[Subscription], offered: Sequence[str]) -> str:
    """The assignor of those that are offered which most members prefer; of several the first, as where nobody does."""
    named = (each.server_assignor for each in subscriptions)
    votes = Counter(name for name in named if name is not None and name in offered)
    return min(votes, key=lambda name: (-votes[name], offered.index(name)), default=offered[0])


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched at `version` of the metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup(StaticGroup[ConsumerMember, Subscription, Current, Assignment]):
    """One group, as its committed records describe it."""

    __slots__ = ("checked_version", "owners", "regexes")

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

    def validate_member(self, member_id: str, member_epoch: int) -> ConsumerMember:
        """The member that fetches offsets.

        Raises UnknownMemberIdError, StaleMemberEpochError, or IllegalGenerationError for a classic member.
        """
        member = self.find_member(member_id)
        if member.current.epoch != member_epoch:
            raise stale(member, f"{member_id} is at epoch {member.current.epoch}, not {member_epoch}")
        return member

    def validate_commit(self, member_id: str, member_epoch: int, partitions: Iterable[tuple[UUID, int]]) -> None:
        """Whether a member may commit offsets of these partitions, also with an epoch before its current one.

        An older epoch is good for the partitions that the member has held since then (KIP-1251): a commit that was on
        its way while the epoch rose need not be repeated, and a zombie's is refused. Raises as `validate_member` does.
        """
        member = self.find_member(member_id)
        current = member.current
        if member_epoch == current.epoch:
            return
        if member_epoch > current.epoch:
            raise stale(member, f"epoch {member_epoch} is newer than the current epoch {current.epoch}")
        for topic_id, index in partitions:
            epoch = current.epochs.get((topic_id, index))
            if epoch is None:
                raise stale(member, f"partition {index} of {topic_id} is not assigned to {member_id}")
            if member_epoch < epoch:
                raise stale(member, f"partition {index} of {topic_id} was assigned at epoch {epoch}")

    # Classic members

    def has_consumer_members(self) -> bool:
        """Whether some member speaks the consumer protocol."""
        return any(member.classic is None for member in self.members.values())

    def supports_classic(self, names: Iterable[str]) -> bool:
        """Whether a classic member with these protocols may join: all classic members share one of them. One that joins
        again counts with what it said before.
        """
        classic = (member.classic for member in self.members.values())
        said = [{name for name, _ in each.protocols} for each in classic if each is not None]
        return bool(set(names).intersection(*said))

    # Replay

    @property
    def kind(self) -> str:
        return "consumer"

    @property
    def no_target(self) -> Assignment:
        return EMPTY_ASSIGNMENT

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


def stale(member: ConsumerMember, why: str) -> StaleMemberEpochError | IllegalGenerationError:
    """How a member is told, in the terms of its protocol, that its epoch is wrong."""
    return StaleMemberEpochError(why) if member.classic is None else IllegalGenerationError(why)


def held(current: Current) -> Iterable[tuple[UUID, int]]:
    """The partitions that a member holds until it says otherwise."""
    for assignment in (current.assigned, current.pending_revocation):
        for topic_id, indexes in assignment.items():
            for index in indexes:
                yield topic_id, index


def _contains(assigned: Assignment, owned: Assignment) -> bool:
    """Whether all that a member says it owns is assigned to it."""
    return all(topic_id in assigned and indexes <= assigned[topic_id] for topic_id, indexes in owned.items())
