"""A member of a classic group, and what JoinGroup and SyncGroup answer it. Plain state.

Kafka's counterpart is ClassicGroupMember.
"""

import math
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Protocol(NamedTuple):
    """One embedded protocol that a member offers (an assignor), with the member's metadata for it."""

    name: str
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a JoinGroup, the same for every version."""

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
        """The end of the session, on Trio's clock. A heartbeat only moves it; `Sessions.watch` looks when it wakes."""
        self.removed = False

    def begin_first_join(self, deadline: float) -> None:
        """It waits for its first generation, however long that takes, until the deadline on Trio's clock."""
        self.is_new = True
        self.deadline = deadline

    def end_first_join(self) -> None:
        """It has been in a generation: from now on it is not missed while it waits for an answer."""
        self.is_new = False

    def await_join(self) -> "Pending[JoinResult]":
        """Its JoinGroup waits; one that was sent before waits for the same answer."""
        self.awaiting_join = self.awaiting_join or Pending()
        return self.awaiting_join

    def await_sync(self) -> "Pending[SyncResult]":
        """Its SyncGroup waits; one that was sent before waits for the same answer."""
        self.awaiting_sync = self.awaiting_sync or Pending()
        return self.awaiting_sync

    def take_join(self) -> "Pending[JoinResult] | None":
        """The JoinGroup that waits, which is about to be answered."""
        pending, self.awaiting_join = self.awaiting_join, None
        return pending

    def take_sync(self) -> "Pending[SyncResult] | None":
        """The SyncGroup that waits, which is about to be answered."""
        pending, self.awaiting_sync = self.awaiting_sync, None
        return pending

    def assign(self, assignment: bytes) -> None:
        """Set the assignment in the group's generation; empty until it is decided."""
        self.assignment = assignment

    def update(self, protocols: Sequence[Protocol], rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """It has joined again, with these."""
        self.protocols = tuple(protocols)
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms

    def rename(self, member_id: str) -> None:
        """A static member came back under a new id."""
        self.member_id = member_id

    def remove(self) -> None:
        """It is no longer a member, and its session ends."""
        self.removed = True

    def is_waiting(self) -> bool:
        """Whether the coordinator owes it an answer, so that it need not heartbeat. A new member's wait is limited."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """The member's metadata for a protocol; empty if it does not offer it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: frozenset[str]) -> str | None:
        """The first of its protocols that everyone has."""
        return next((name for name, _ in self.protocols if name in candidates), None)
