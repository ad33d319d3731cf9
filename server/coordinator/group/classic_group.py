"""A consumer group of the classic protocol: its members, generation and state. Plain state, no waiting, no I/O.

Kafka's counterpart is org.apache.kafka.coordinator.group.classic.ClassicGroup. The states and what leads from one to
the other:

    EMPTY                 no members (offsets may remain)        join -> PREPARING_REBALANCE
    PREPARING_REBALANCE   members are asked to rejoin            all joined, or the time is up -> COMPLETING_REBALANCE
                                                                 all have left -> EMPTY
    COMPLETING_REBALANCE  the leader computes the assignment     its SyncGroup is stored -> STABLE
                                                                 join or leave -> PREPARING_REBALANCE
    STABLE                everyone has an assignment             join, leave, expiry -> PREPARING_REBALANCE
    DEAD                  removed; whoever still holds it is told to find the coordinator again
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.server.coordinator.errors import FencedInstanceIdError, UnknownMemberIdError

NO_GENERATION: Final = -1

T = TypeVar("T")


class ClassicState(Enum):
    """Values are the names that DescribeGroups and ListGroups answer with."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_ALLOWED: Final = {
    ClassicState.EMPTY: {ClassicState.PREPARING_REBALANCE},
    ClassicState.PREPARING_REBALANCE: {
        ClassicState.STABLE,
        ClassicState.COMPLETING_REBALANCE,
        ClassicState.EMPTY,
    },
    ClassicState.COMPLETING_REBALANCE: {ClassicState.PREPARING_REBALANCE},
    ClassicState.STABLE: {ClassicState.COMPLETING_REBALANCE},
    ClassicState.DEAD: set(ClassicState),
}
"""State -> the states it may be entered from."""


class Protocol(NamedTuple):
    """One embedded protocol that a member offers (an assignor), with the member's metadata for it."""

    name: str
    metadata: bytes


class JoinResult(NamedTuple):
    """What a JoinGroup answers: the same for every version."""

    member_id: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    members: tuple["ClassicMember", ...] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class Pending(Generic[T]):
    """A request that waits for its answer: the key in the purgatory, and the answer once there is one.

    A member that meanwhile sends its request again on another connection gets the same answer there.
    """

    __slots__ = ("answer", "error")

    def __init__(self) -> None:
        self.answer: T | None = None
        self.error: Exception | None = None

    def settle(self, answer: T | Exception) -> None:
        if isinstance(answer, Exception):
            self.error = answer
        else:
            self.answer = answer

    def is_settled(self) -> bool | None:
        """True, or None as the purgatory wants it while there is no answer."""
        return True if self.error is not None or self.answer is not None else None


class ClassicMember:
    """One member; `awaiting_join` and `awaiting_sync` are its requests that wait for an answer."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "deadline",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "removed",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Sequence[Protocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = tuple(protocols)
        self.assignment = assignment
        self.is_new = False
        self.awaiting_join: Pending[JoinResult] | None = None
        self.awaiting_sync: Pending[SyncResult] | None = None
        self.deadline = math.inf
        """When the session ends, on Trio's clock. A heartbeat only moves it; `Sessions.watch` looks when it wakes."""
        self.removed = False

    def is_waiting(self) -> bool:
        """Whether the coordinator owes it an answer, so that it need not heartbeat. A new member's wait is limited."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """The member's metadata for a protocol; empty if it does not offer it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: frozenset[str]) -> str | None:
        """The first of its protocols that everyone has."""
        return next((name for name, _ in self.protocols if name in candidates), None)


class ClassicGroup:
    """One group. Methods keep its invariants; when to call them is the protocol's business (`classic.py`)."""

    __slots__ = (
        "current_state_since_ms",
        "generation_id",
        "generation_metadata",
        "group_id",
        "leader_id",
        "members",
        "new_member_added",
        "pending_members",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
    )

    def __init__(self, group_id: str, *, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.EMPTY
        self.current_state_since_ms = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_metadata: tuple[bytes, ...] | None = None
        """What the generation's members said in its protocol, whoever has joined or left since; None before the first
        (Kafka's `subscribedTopics`)."""
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, float] = {}
        """Ids that KIP-394 handed out and that have not joined yet, with the end of their wait on Trio's clock."""
        self.pending_sync: set[str] = set()
        self.new_member_added = False

    def transition_to(self, state: ClassicState, *, now_ms: int) -> None:
        allowed = _ALLOWED.get(state, set())
        assert state is ClassicState.DEAD or self.state in allowed, f"{self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.current_state_since_ms = now_ms

    def is_in(self, *states: ClassicState) -> bool:
        return self.state in states

    # Members

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self.members
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member. If it was the leader, the one that joined first of the others becomes the leader."""
        self.pending_members.pop(member_id, None)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        member.removed = True
        return member

    def replace_static(self, group_instance_id: str, new_member_id: str) -> ClassicMember:
        """KIP-345: a restarted static member takes over what its predecessor had, under a new id."""
        old_member_id = self.static_members[group_instance_id]
        member = self.members.pop(old_member_id)
        self.pending_sync.discard(old_member_id)
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """The member that a request speaks for. Raises UnknownMemberIdError or FencedInstanceIdError."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise UnknownMemberIdError(f"no static member {group_instance_id} in group {self.group_id}")
            if current != member_id:
                raise FencedInstanceIdError(f"{group_instance_id} is now {current} in group {self.group_id}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"no member {member_id} in group {self.group_id}")
        return member

    # Protocols

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member offering these may join: same type, and something in common with everyone."""
        offered = set(names)
        if not self.members:
            return bool(protocol_type) and bool(offered)
        return self.protocol_type == protocol_type and bool(offered & self.candidates())

    def candidates(self) -> frozenset[str]:
        """The protocols that all members offer. A member that names one twice offers it once."""
        counts = Counter(name for member in self.members.values() for name in {name for name, _ in member.protocols})
        return frozenset(name for name, count in counts.items() if count == len(self.members))

    def select_protocol(self) -> str:
        """The protocol with most votes; each member votes for the first of its own that everyone has."""
        candidates = self.candidates()
        votes = Counter(vote for member in self.members.values() if (vote := member.vote(candidates)) is not None)
        assert votes, "members without a common protocol were let in"
        return votes.most_common(1)[0][0]

    # Rebalance

    def all_joined(self) -> bool:
        return not self.pending_members and all(member.awaiting_join is not None for member in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def next_generation(self, *, now_ms: int) -> None:
        """Enter COMPLETING_REBALANCE with the next generation, or EMPTY if nobody is left."""
        self.generation_id = 1 if self.generation_id == 2**31 - 1 else self.generation_id + 1
        self.agree(self.select_protocol() if self.members else None)
        self.transition_to(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, now_ms=now_ms)
        self.pending_sync.clear()

    def agree(self, protocol_name: str | None) -> None:
        """The members of a generation use this protocol. What they said in it counts until the next generation."""
        self.protocol_name = protocol_name
        said = () if protocol_name is None else (member.metadata(protocol_name) for member in self.members.values())
        self.generation_metadata = tuple(said)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, else take one that has. False if nobody has."""
        if self.leader_id is not None and self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader_id = joined
        return True

    def join_result(self, member: ClassicMember) -> JoinResult:
        """The answer that carries the current generation to one member; the leader learns of everyone."""
        is_leader = member.member_id == self.leader_id
        return JoinResult(
            member_id=member.member_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            members=tuple(self.members.values()) if is_leader else (),
        )
