"""The election of the registry that writes, as Confluent's do it: by a classic group of the protocol `sr`.

A registry joins the group when it is first asked to write: readers need nobody. It may write

- when the group has assigned that to it, until its session may have ended: a session's length after the last heartbeat
  that was answered had been sent;
- while it waits for its first assignment, if it is the group's only member: it has joined before it looked, so of two
  that join at the same time at most one finds itself alone. The group's first member assigns, and keeps itself.

While the group rebalances nobody writes. What is sent before the right to write ends may still arrive after it: the log
finds that out when it reads back what it wrote (`SchemaLog.append`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.client.errors import BrokerError, ClientError, UnreachableError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.kproto.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.kproto.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.registry.errors import leader_unknown
from ottla.registry.writer.identity import NO_ERROR, Assignment, Identity, elect, parse_assignment, parse_identity

if TYPE_CHECKING:
    from ottla.client.trio_connection import TrioConnection
    from ottla.registry.store.connections import Connect

logger = logging.getLogger(__name__)

GROUP: Final = "schema-registry"
"""Confluent's `schema.registry.group.id`."""

_PROTOCOL_TYPE: Final = "sr"
_PROTOCOL: Final = "v0"
SESSION_SECONDS: Final = 10.0
_HEARTBEAT_SHARE: Final = 0.3
"""Of a session: after how long a heartbeat follows."""

_REBALANCE_SECONDS: Final = 10.0
_JOIN_SECONDS: Final = 30.0
_LEAVE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.02
_COORDINATOR_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 15.0
_PAUSES_SECONDS: Final = (0.1, 0.5, 1.0, 2.0)
_TOLD_FAILURES: Final = 3
_MEMBER_LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
_NOT_YET: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_ANEW: Final = (*_MEMBER_LOST, ErrorCode.REBALANCE_IN_PROGRESS)


class _RejoinError(Exception):
    """The group begins a new generation, or has forgotten this member."""


class Election:
    """This instance's part in the election. The task that calls `run` owns its connections and its membership."""

    def __init__(
        self,
        connect: Connect,
        bootstrap: Sequence[tuple[str, int]],
        identity: Identity,
        group_id: str = GROUP,
        session_seconds: float = SESSION_SECONDS,
    ) -> None:
        self.identity = identity
        self._session_seconds = session_seconds
        self._connect = connect
        self._bootstrap = tuple(bootstrap)
        self._group_id = group_id
        self._wanted = trio.Event()
        self._changed = trio.Event()
        self._member_id = ""
        #: The member that writes as far as is known, who it is, and until when that is certain.
        self._writer_id: str | None = None
        self._writer: Identity | None = None
        self._valid_until = 0.0
        self._reason = "the election is under way"
        self._was_member = False
        #: The reason if the group has decided that no registry may write.
        self._verdict: str | None = None

    @property
    def is_writer(self) -> bool:
        """Whether this instance may write now."""
        return self._writer_id == self._member_id != "" and trio.current_time() < self._valid_until

    async def writer(self) -> Identity | None:
        """The registry that writes; None if it is this one. Raises RegistryError 50004 if that stays unknown."""
        self._wanted.set()
        with trio.move_on_after(_WAIT_SECONDS):
            while True:
                if self.is_writer:
                    return None
                is_other = self._writer is not None and self._writer_id != self._member_id
                if is_other and trio.current_time() < self._valid_until:
                    return self._writer
                if self._verdict is not None:
                    raise leader_unknown(self._verdict)
                await self._changed.wait()
        raise leader_unknown(self._reason)

    async def run(self) -> None:
        """Take part, from the first write on, until cancelled. What goes wrong is told in the log and tried again."""
        await self._wanted.wait()
        failures = 0
        while True:
            self._was_member = False
            try:
                await self._take_part()
            except* (ClientError, ValueError) as group:
                self._reason = "; ".join(str(leaf) for leaf in _leaves(group))
            failures = 0 if self._was_member else failures + 1
            # The first one is passing, as a rule: a coordinator that is made, or has moved.
            if failures == _TOLD_FAILURES:
                logger.warning(
                    "the registries' group cannot be joined: %s", self._reason, extra={"error": self._reason}
                )
            self._forget()
            await trio.sleep(_PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS) - 1)])

    # What is known.

    def _learn(self, writer_id: str | None, writer: Identity | None, valid_until: float) -> None:
        was_writer = self.is_writer
        self._writer_id, self._writer, self._valid_until = writer_id, writer, valid_until
        if self.is_writer and not was_writer:
            logger.info("this schema registry writes")
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _forget(self) -> None:
        """Nobody is known to write. The id stays, by which the present writer is known if it is still there."""
        self._verdict = None
        self._learn(self._writer_id, None, 0.0)

    # The group.

    async def _take_part(self) -> None:
        """Be a member for as long as the coordinator is where it is."""
        async with trio.open_nursery() as nursery:
            host, port = await self._coordinator(nursery)
            # A coordinator holds up a connection on which somebody joins.
            joining: TrioConnection = await nursery.start(self._connect(host, port).run)
            looking: TrioConnection = await nursery.start(self._connect(host, port).run)
            try:
                while True:
                    try:
                        await self._be_member(joining, looking)
                    except _RejoinError:
                        self._forget()
            finally:
                self._forget()
                with trio.move_on_after(_LEAVE_SECONDS, shield=True):
                    await self._leave(host, port)
                nursery.cancel_scope.cancel()

    async def _coordinator(self, nursery: trio.Nursery) -> tuple[str, int]:
        failure: ClientError = UnreachableError("the cluster", "no broker is named")
        for host, port in self._bootstrap:
            try:
                asked: TrioConnection = await nursery.start(self._connect(host, port).run)
            except ClientError as error:
                failure = error
                continue
            with trio.move_on_after(_COORDINATOR_SECONDS):
                answer = await self._asked_for_coordinator(asked)
                asked.close()
                return answer.host, answer.port
            failure = UnreachableError("the coordinator of the registries' group", "there is none yet")
        raise failure

    async def _asked_for_coordinator(self, asked: TrioConnection) -> Any:
        while True:
            answer = await asked.call(FindCoordinatorRequest(key=self._group_id, key_type=0), at_most=3)
            # The topic of groups may have to be created first.
            if answer.error_code not in _NOT_YET:
                _check(answer.error_code, "the coordinator of the registries' group")
                return answer
            await trio.sleep(_LOOK_SECONDS)

    async def _be_member(self, joining: TrioConnection, looking: TrioConnection) -> None:
        """One generation. Raises _RejoinError when it is over."""
        joined = await self._join(joining, looking)
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self._member_id:
            members = {it.member_id: parse_identity(it.metadata) for it in joined.members}
            elected = elect(members, self._writer_id).encode()
            assignments = [SyncGroupRequestAssignment(member_id=it, assignment=elected) for it in members]
        elif self.is_writer:
            self._forget()
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        sent = trio.current_time()
        synced = await joining.call(request)
        self._check_member(synced.error_code)
        assignment = parse_assignment(synced.assignment)
        self._take(assignment, sent)
        while True:
            await trio.sleep(self._session_seconds * _HEARTBEAT_SHARE)
            sent = trio.current_time()
            beat = HeartbeatRequest(
                group_id=self._group_id, generation_id=joined.generation_id, member_id=self._member_id
            )
            self._check_member((await looking.call(beat, timeout_seconds=self._session_seconds)).error_code)
            self._take(assignment, sent)

    def _take(self, assignment: Assignment, heard_at: float) -> None:
        """Learn what the group has decided, which was true at a time."""
        self._was_member = True
        verdict = None
        if assignment.error != NO_ERROR:
            verdict = "two registries say that they have the same address"
        elif assignment.leader is None:
            verdict = "none of the registries may write"
        if verdict is not None and verdict != self._verdict:
            logger.error("the schemas cannot be changed: %s", verdict, extra={"error": verdict})
        self._verdict = verdict
        is_decided = verdict is None
        self._learn(
            assignment.member_id if is_decided else None,
            assignment.leader if is_decided else None,
            heard_at + self._session_seconds,
        )

    async def _join(self, joining: TrioConnection, looking: TrioConnection) -> Any:
        while True:
            request = JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=int(self._session_seconds * 1000),
                rebalance_timeout_ms=int(_REBALANCE_SECONDS * 1000),
                member_id=self._member_id,
                protocol_type=_PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=self.identity.encode())],
            )
            async with trio.open_nursery() as nursery:
                if self._member_id:
                    nursery.start_soon(self._look_around, looking)
                answer = await joining.call(request, timeout_seconds=_JOIN_SECONDS)
                nursery.cancel_scope.cancel()
            if answer.error_code == ErrorCode.NONE:
                self._member_id = answer.member_id
                return answer
            self._forget()
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            self._check_member(answer.error_code)

    async def _look_around(self, looking: TrioConnection) -> None:
        """Write already, if nobody else is there who could."""
        began = trio.current_time()
        while True:
            answer = await looking.call(DescribeGroupsRequest(groups=[self._group_id]))
            (group,) = answer.groups
            members = {member.member_id for member in group.members}
            if group.error_code == ErrorCode.NONE and self._member_id in members:
                if members == {self._member_id}:
                    self._learn(self._member_id, self.identity, began + self._session_seconds)
                return
            await trio.sleep(_LOOK_SECONDS)

    def _check_member(self, code: int) -> None:
        if code in _MEMBER_LOST:
            self._member_id = ""
        if code in _ANEW:
            raise _RejoinError
        _check(code, "the registries' group")

    async def _leave(self, host: str, port: int) -> None:
        """So that another one need not wait until this session ends. A cancellation has closed the connections."""
        member_id, self._member_id = self._member_id, ""
        if not member_id:
            return
        request = LeaveGroupRequest(group_id=self._group_id, members=[MemberIdentity(member_id=member_id)])
        try:
            async with trio.open_nursery() as nursery:
                connection: TrioConnection = await nursery.start(self._connect(host, port).run)
                await connection.call(request)
                nursery.cancel_scope.cancel()
        except* ClientError as group:
            logger.debug("the registries' group was not left in order: %s", group.exceptions[0])


def _check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(code, what=what)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterable[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
