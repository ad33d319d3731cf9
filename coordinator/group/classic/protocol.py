"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup over `ClassicGroup`s.

What it promises (KIP-62, 134, 345, 394, 559, 814; Kafka's GroupMetadataManager, classicGroup… methods):

- A rebalance ends when every known member has rejoined or the largest rebalance timeout is over, whichever comes first.
- An assignment is handed out only after it is committed to `__consumer_offsets`.
- State changes between awaits are whole: every method without `async` leaves the group in a state that may be observed.
- Joins, syncs and sessions wait in purgatories. A request that is cancelled because its connection closed changes
  nothing in the group.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.member import ClassicMember, JoinResult, Protocol, SyncResult
from ottla.coordinator.group.classic.rebalance import ClassicConfig, GroupStore, Rebalance
from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.coordinator.group.protocol import DefaultProtocol
from ottla.coordinator.group.topics import MayDescribe
from ottla.kproto.internal_records.consumer_offsets import GroupMetadataValue
from ottla.runtime.purgatory import Purgatory
from ottla.runtime.supervisor import Loop, Tasks
from ottla.storage.clock import Clock

# Members of an enumeration cost as much to look up as a call, and these are asked for with every commit of offsets.
_DEAD: Final = ClassicState.DEAD
_EMPTY: Final = ClassicState.EMPTY
_COMPLETING_REBALANCE: Final = ClassicState.COMPLETING_REBALANCE

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a member that has never had an assignment may wait in a rebalance before it is considered gone."""


class JoinRequest(NamedTuple):
    """A JoinGroup of any version. `known_member_id_required`: v4 and later without a static instance id."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Sequence[Protocol]
    known_member_id_required: bool
    supports_skipping_assignment: bool
    #: Whether the sender may describe a topic; None where everybody may. For groups of the consumer protocol.
    may_describe: MayDescribe | None = None


class SyncRequest(NamedTuple):
    """A SyncGroup of any version. What a version does not say of the protocol is None."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class ClassicProtocol(DefaultProtocol[ClassicGroup]):
    """Runs the classic protocol for all groups of one broker."""

    group_class = ClassicGroup

    def __init__(
        self,
        *,
        config: ClassicConfig,
        clock: Clock,
        purgatory: Purgatory,
        nursery: Tasks,
        store: GroupStore,
    ) -> None:
        self._config = config
        self._clock = clock
        self._purgatory = purgatory
        self._nursery = nursery
        self._store = store
        self._rebalance = Rebalance(config=config, clock=clock, purgatory=purgatory, nursery=nursery, store=store)
        self._sessions = self._rebalance.sessions
        #: The purgatory in which joins and syncs wait for the other members.
        self.answers = self._rebalance.answers

    # JoinGroup

    def create(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, now_ms=self._clock.time_ms())

    def restore(self, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        return ClassicGroup.restored(group_id, value, now_ms=self._clock.time_ms())

    def store_empty(self, group: ClassicGroup) -> None:
        """Somebody joins a group that was not there: from now on there is one, also after a restart."""
        self._rebalance.store_empty(group)

    async def join(self, group: ClassicGroup, request: JoinRequest) -> JoinResult:
        """Join or rejoin. Returns with the next generation, or raises the error that tells the member what to do."""
        self._check_size(group, request.member_id)
        if group.is_in(ClassicState.DEAD):
            raise CoordinatorNotAvailableError(f"group {group.group_id} is being removed")
        if not group.supports_protocols(request.protocol_type, (name for name, _ in request.protocols)):
            raise InconsistentGroupProtocolError(f"no protocol in common with group {group.group_id}")
        if not request.member_id:
            return await self._join_new(group, request)
        return await self._join_existing(group, request)

    def _check_size(self, group: ClassicGroup, member_id: str) -> None:
        """Kafka's acceptJoiningMember: once a rebalance is under way, only the members that have rejoined count."""
        known = member_id in group.members or member_id in group.pending_members
        if group.is_in(ClassicState.PREPARING_REBALANCE):
            member = group.members.get(member_id)
            waiting = sum(other.awaiting_join is not None for other in group.members.values())
            full = (member is None or member.awaiting_join is None) and waiting >= self._config.max_size
        else:
            full = not known and len(group.members) + len(group.pending_members) >= self._config.max_size
        if full:
            group.pending_members.pop(member_id, None)
            raise GroupMaxSizeReachedError(f"group {group.group_id} has {len(group.members)} members")

    async def _join_new(self, group: ClassicGroup, request: JoinRequest) -> JoinResult:
        instance_id = request.group_instance_id
        member_id = f"{instance_id if instance_id is not None else request.client_id}-{uuid.uuid4()}"
        if instance_id is not None:
            if instance_id in group.static_members:
                return await self._rejoin_static(group, request, member_id)
        elif request.known_member_id_required:
            deadline = trio.current_time() + request.session_timeout_ms / 1000
            group.pending_members[member_id] = deadline
            self._nursery.start_soon(Loop(self._sessions.watch_pending), group, member_id, request.session_timeout_ms)
            raise MemberIdRequiredError(member_id)
        return await self._add_and_rebalance(group, request, member_id)

    async def _join_existing(self, group: ClassicGroup, request: JoinRequest) -> JoinResult:
        if request.member_id in group.pending_members:
            return await self._add_and_rebalance(group, request, request.member_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        unchanged = member.protocols == tuple(request.protocols)
        if group.is_in(ClassicState.EMPTY):
            raise UnknownMemberIdError(f"group {group.group_id} is empty")
        current = group.is_in(ClassicState.COMPLETING_REBALANCE) or (
            group.is_in(ClassicState.STABLE) and group.leader_id != member.member_id
        )
        if current and unchanged:
            return group.join_result(member)
        member.update(request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        return await self._await_join(group, member)

    async def _add_and_rebalance(self, group: ClassicGroup, request: JoinRequest, member_id: str) -> JoinResult:
        member = ClassicMember(
            member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
        )
        member.begin_first_join(trio.current_time() + NEW_MEMBER_JOIN_TIMEOUT_MS / 1000)
        group.join(member, request.protocol_type)
        self._nursery.start_soon(Loop(self._rebalance.watch), group, member)
        return await self._await_join(group, member)

    async def _rejoin_static(self, group: ClassicGroup, request: JoinRequest, member_id: str) -> JoinResult:
        """KIP-345: the instance restarted. It keeps its assignment unless its protocols change the group's choice."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        member = group.members[group.static_members[instance_id]]
        old_member_id, old_leader = member.member_id, group.leader_id
        former = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        fenced = FencedInstanceIdError(f"{instance_id} joined again as {member_id}")
        self._rebalance.answer_join(member, fenced)
        self._rebalance.answer_sync(member, fenced)
        group.replace_static(instance_id, member_id)
        member.update(request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self._sessions.touch(member)
        if not group.is_in(ClassicState.STABLE) or group.select_protocol() != group.protocol_name:
            return await self._await_join(group, member)
        try:
            assignments = {each.member_id: each.assignment for each in group.members.values()}
            await self._store.begin_store(group, group.metadata_record(assignments))
        except CoordinatorError:
            if group.static_members.get(instance_id) == member_id:
                group.replace_static(instance_id, old_member_id)
                member.update(*former)
            raise
        if not group.is_in(ClassicState.STABLE) or member.removed:
            raise RebalanceInProgressError(f"group {group.group_id} changed while {instance_id} rejoined")
        return self._static_result(group, member, old_leader, skip=request.supports_skipping_assignment)

    def _static_result(
        self, group: ClassicGroup, member: ClassicMember, old_leader: str | None, *, skip: bool
    ) -> JoinResult:
        """KIP-814 (v9): a leader learns of all members and that the assignment stands.

        Older versions name the former leader instead, so that the member does not assign.
        """
        result = group.join_result(member)
        if skip:
            return result._replace(skip_assignment=bool(result.members))
        return result._replace(leader=old_leader or "", members=())

    async def _await_join(self, group: ClassicGroup, member: ClassicMember) -> JoinResult:
        pending = member.await_join()
        self._rebalance.prepare(group)
        self._purgatory.signal(group)
        return await self._rebalance.answer_to(pending)

    # SyncGroup

    async def sync(self, group: ClassicGroup, request: SyncRequest) -> SyncResult:
        """Hand in (the leader) and wait for (everyone) this generation's assignment."""
        member = self._validated(group, request.member_id, request.group_instance_id, request.generation_id)
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            raise InconsistentGroupProtocolError(f"group {group.group_id} is of type {group.protocol_type}")
        if request.protocol_name is not None and request.protocol_name != group.protocol_name:
            raise InconsistentGroupProtocolError(f"group {group.group_id} chose {group.protocol_name}")
        if group.is_in(ClassicState.PREPARING_REBALANCE):
            raise RebalanceInProgressError(f"group {group.group_id} rebalances")
        group.pending_sync.discard(request.member_id)
        self._purgatory.signal(group)
        if group.is_in(ClassicState.STABLE):
            self._sessions.touch(member)
            return SyncResult(group.protocol_type, group.protocol_name, member.assignment)
        pending = member.await_sync()
        if request.member_id == group.leader_id:
            complete = {each: request.assignments.get(each, b"") for each in group.members}
            self._rebalance.assign(group, complete)
        return await self._rebalance.answer_to(pending)

    # Heartbeat and sessions

    def heartbeat(
        self, group: ClassicGroup, *, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """Prolong the session. Raises RebalanceInProgressError to make the member rejoin."""
        member = self._validated(group, member_id, group_instance_id, generation_id)
        self._sessions.touch(member)
        if group.is_in(ClassicState.PREPARING_REBALANCE):
            raise RebalanceInProgressError(f"group {group.group_id} rebalances")

    def validate_offset_commit(
        self, group: ClassicGroup, committer: Committer, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> None:
        """A member of this generation may commit, which prolongs its session, or nobody while the group is empty."""
        member_id, group_instance_id, generation_id, transactional, _ = committer
        if group.state is _DEAD:
            raise CoordinatorNotAvailableError(f"group {group.group_id} is being removed")
        if generation_id < 0 and group.state is _EMPTY:
            return
        if generation_id >= 0 or member_id or group_instance_id is not None:
            member = group.validate_member(member_id, group_instance_id)
            if generation_id != group.generation_id:
                raise IllegalGenerationError(f"group {group.group_id} is at generation {group.generation_id}")
            self._sessions.touch(member)
        elif not transactional:
            raise UnknownMemberIdError(f"group {group.group_id} has members, and the commit names none")
        if not transactional and group.state is _COMPLETING_REBALANCE:
            raise RebalanceInProgressError(f"group {group.group_id} rebalances")

    def _validated(
        self, group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ClassicMember:
        if group.is_in(ClassicState.DEAD):
            raise CoordinatorNotAvailableError(f"group {group.group_id} is being removed")
        member = group.validate_member(member_id, group_instance_id)
        if generation_id != group.generation_id:
            raise IllegalGenerationError(f"group {group.group_id} is at generation {group.generation_id}")
        return member

    # LeaveGroup

    async def leave(self, group: ClassicGroup, member_id: str, group_instance_id: str | None) -> str:
        """Remove one member (by id, or by static instance id with an empty member id); returns its member id."""
        if group.is_in(ClassicState.DEAD):
            raise CoordinatorNotAvailableError(f"group {group.group_id} is being removed")
        if not member_id and group_instance_id is not None:
            member_id = group.static_members.get(group_instance_id, "")
        elif member_id in group.pending_members:
            # It was given an id and is no member yet. The others rejoin all the same, as in Kafka.
            del group.pending_members[member_id]
            self._rebalance.remove_and_rebalance(group, member_id)
            return member_id
        group.validate_member(member_id, group_instance_id)
        self._rebalance.remove_and_rebalance(group, member_id)
        return member_id

    def rebalance(self, group: ClassicGroup) -> None:
        """Ask all members to rejoin."""
        self._rebalance.prepare(group)
        self._purgatory.signal(group)

    # Loading and unloading

    def resume(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            self._sessions.touch(member)
            self._nursery.start_soon(Loop(self._rebalance.watch), group, member)

    def close(self, group: ClassicGroup, reason: CoordinatorError) -> None:
        group.transition_to(ClassicState.DEAD, now_ms=self._clock.time_ms())
        for member in list(group.members.values()):
            self._rebalance.answer_join(member, reason)
            self._rebalance.answer_sync(member, reason)
            member.remove()
            self._purgatory.signal(member)
        group.pending_members.clear()
        self._purgatory.signal(group)
