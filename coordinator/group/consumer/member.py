"""A member of a group of the consumer protocol (KIP-848): what it said, and where it stands. Plain state.

Kafka's counterpart is ConsumerGroupMember.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordinator.group.assignment import EMPTY_ASSIGNMENT, Assignment
from ottla.coordinator.group.classic.member import Protocol
from ottla.coordinator.group.modern.static_members import LEAVE_STATIC_EPOCH, StaticMember


class MemberState(IntEnum):
    """How far a member is with its target; the numbers are those of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ClassicSide(NamedTuple):
    """The JoinGroup of a classic member, which lives in a group of this protocol during a migration."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class Subscription(NamedTuple):
    """A member's subscription: the content of its metadata record. `classic` is set for a classic member."""

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
    """A member's current assignment: the content of its record."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = EMPTY_ASSIGNMENT
    pending_revocation: Assignment = EMPTY_ASSIGNMENT
    epochs: AssignmentEpochs = NO_EPOCHS

    @property
    def held(self) -> Assignment:
        """The assigned partitions, and those that are not revoked yet."""
        topic_ids = {*self.assigned, *self.pending_revocation}
        nothing: frozenset[int] = frozenset()
        return {
            topic_id: self.assigned.get(topic_id, nothing) | self.pending_revocation.get(topic_id, nothing)
            for topic_id in topic_ids
        }

    def rejoined(self) -> "Current":
        """The state of a static member that joins again: it keeps its assignment; pending revocations are released."""
        return Current(previous_epoch=0, assigned=self.assigned, epochs=self.epochs)

    def away(self) -> "Current":
        """The state of a static member that has left temporarily: pending revocations are released, its assignment is
        kept, and the member that replaces it may commit with any epoch.
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
        """Whether a member that joins with the same instance id replaces it; a classic member is always replaced."""
        return self.has_left or self.classic is not None

    def check_epoch(self, epoch: int, owned: Assignment | None) -> None:
        """Whether a heartbeat with this epoch may be answered. Raises FencedMemberEpochError."""
        self._check_epoch("consumer", epoch, lambda: owned is not None and _contains(self.current.assigned, owned))


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched at `version` of the metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def held(current: Current) -> Iterable[tuple[UUID, int]]:
    """The partitions that a member holds until it says otherwise."""
    for assignment in (current.assigned, current.pending_revocation):
        for topic_id, indexes in assignment.items():
            for index in indexes:
                yield topic_id, index


def _contains(assigned: Assignment, owned: Assignment) -> bool:
    """Whether all that a member says it owns is assigned to it."""
    return all(topic_id in assigned and indexes <= assigned[topic_id] for topic_id, indexes in owned.items())
