"""A consumer group of the classic protocol: its members, generation and state. Plain state, no waiting, no I/O.

Kafka's counterpart is org.apache.kafka.coordinator.group.classic.ClassicGroup. The states and what leads from one to
the other:

    EMPTY                 no members (offsets may remain)        join -> PREPARING_REBALANCE
    PREPARING_REBALANCE   members are asked to rejoin            all joined, or the time is up -> COMPLETING_REBALANCE
                                                                 all have left -> EMPTY
    COMPLETING_REBALANCE  the leader computes the assignment     its SyncGroup is stored -> STABLE
                                                                 join or leave -> PREPARING_REBALANCE
    STABLE                everyone has an assignment             join, leave, expiry -> PREPARING_REBALANCE
    DEAD                  removed; requests that still hold it get COORDINATOR_NOT_AVAILABLE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from ottla.coordinator.errors import (
    FencedInstanceIdError,
    GroupIdNotFoundError,
    NonEmptyGroupError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.classic import records
from ottla.coordinator.group.classic.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from ottla.coordinator.group.classic.member import ClassicMember, JoinResult
from ottla.coordinator.group.group import Group, OffsetExpiry
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records.consumer_offsets import GroupMetadataKey, GroupMetadataValue


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


class ClassicGroup(Group):
    """One group. Methods keep its invariants; when to call them is the protocol's business (`protocol.py`)."""

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

    state: ClassicState
    kind = "classic"
    gives_way = frozenset({"consumer", "streams"})

    def __init__(self, group_id: str, *, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.EMPTY
        self.current_state_since_ms = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_metadata: tuple[bytes, ...] | None = None
        """The protocol metadata of the generation's members, unchanged by later joins and leaves; None before the first
        generation (Kafka's `subscribedTopics`)."""
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

    def join(self, member: ClassicMember, protocol_type: str) -> None:
        """A new member joins. The first one decides the group's type; one during the first rebalance prolongs that."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.is_in(ClassicState.PREPARING_REBALANCE) and self.previous_state is ClassicState.EMPTY:
            self.new_member_added = True
        self.add(member)

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
        member.remove()
        return member

    def replace_static(self, group_instance_id: str, new_member_id: str) -> ClassicMember:
        """KIP-345: a restarted static member takes over what its predecessor had, under a new id."""
        old_member_id = self.static_members[group_instance_id]
        member = self.members.pop(old_member_id)
        self.pending_sync.discard(old_member_id)
        member.rename(new_member_id)
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

    def forget_new_member(self) -> None:
        """The first rebalance is prolonged only for those who join from now on."""
        self.new_member_added = False

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

    # Offsets

    def is_empty(self) -> bool:
        return self.is_in(ClassicState.EMPTY)

    def is_awaited(self) -> bool:
        return bool(self.pending_members)

    def validate_offset_fetch(self, member_id: str, member_epoch: int) -> None:
        """Anybody may read them."""

    def undeletable_topics(self) -> frozenset[str] | None:
        if self.is_in(ClassicState.DEAD):
            raise GroupIdNotFoundError(f"Group {self.group_id} not found.")
        if self.is_in(ClassicState.EMPTY):
            return frozenset()
        if self.protocol_type != PROTOCOL_TYPE:
            raise NonEmptyGroupError(f"group {self.group_id} has members")
        return self.subscribed_topics()

    def offset_expiry(self) -> OffsetExpiry | None:
        if self.protocol_type is None:
            return OffsetExpiry(None, frozenset())
        if self.is_in(ClassicState.EMPTY):
            return OffsetExpiry(self.current_state_since_ms, frozenset())
        if self.is_in(ClassicState.STABLE) and self.protocol_type == PROTOCOL_TYPE:
            subscription = self.subscribed_topics()
            return None if subscription is None else OffsetExpiry(None, subscription)
        return None

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that consumers read in their generation; None if they are not known: they may be any."""
        if self.generation_metadata is None:
            return None
        topics: set[str] = set()
        for metadata in self.generation_metadata:
            subscription = subscribed_topics(metadata)
            if subscription is None:
                return None
            topics |= subscription
        return frozenset(topics)

    # Records

    @classmethod
    def key_types(cls) -> tuple[type, ...]:
        return (GroupMetadataKey,)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [records.group_tombstone(self.group_id)]

    def metadata_record(self, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
        """The record of the current generation with the assignments given."""
        return records.group_metadata(
            self.group_id,
            self.members.values(),
            assignments,
            protocol_type=self.protocol_type,
            generation_id=self.generation_id,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id,
            current_state_since_ms=self.current_state_since_ms,
        )

    @classmethod
    def converted(
        cls, group_id: str, members: Iterable[ClassicMember], *, generation_id: int, now_ms: int
    ) -> ClassicGroup:
        """A stable group of consumers with these members, which have their assignments."""
        group = cls(group_id, now_ms=now_ms)
        group.generation_id = generation_id
        group.protocol_type = PROTOCOL_TYPE
        for member in members:
            group.add(member)
        group.agree(group.select_protocol())
        group.state = group.previous_state = ClassicState.STABLE
        return group

    @classmethod
    def restored(cls, group_id: str, value: GroupMetadataValue, *, now_ms: int) -> ClassicGroup:
        """The group that a record describes."""
        group = cls(group_id, now_ms=now_ms)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        for member in records.read_members(value):
            group.add(member)
        group.agree(value.protocol)
        group.leader_id = value.leader
        group.state = group.previous_state = ClassicState.STABLE if group.members else ClassicState.EMPTY
        if value.current_state_timestamp >= 0:
            group.current_state_since_ms = value.current_state_timestamp
        return group
