"""Share sessions (KIP-932): which partitions a member fetches, so that its requests name only what changes.

As fetch sessions, but there is one for each member, and it ends with the member's connection: what the member held then
is given back. A bounded number is kept (`group.share.max.share.sessions`); another one is refused, and none is dropped
for it. So is what would give all of them together more than `MAX_PARTITIONS_IN_SESSIONS`: Kafka has no bound for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.replica.append import TopicIdPartition
from ottla.server.share.errors import (
    InvalidAcknowledgementError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_PARTITIONS_IN_SESSIONS: Final = 500_000
_MAX_EPOCH: Final = 0x7FFFFFFF


class SessionKey(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


class ShareSession:
    """One member's session. `partitions` says of each whether the member was told of it; `owner` is its connection."""

    __slots__ = ("epoch", "key", "owner", "partitions")

    def __init__(self, key: SessionKey, partitions: Iterable[TopicIdPartition], owner: object) -> None:
        self.key = key
        self.owner = owner
        self.epoch = 1
        self.partitions: dict[TopicIdPartition, bool] = dict.fromkeys(partitions, False)

    def add(self, added: Iterable[TopicIdPartition]) -> None:
        """Fetch these as well. Dictionaries are joined, which know the hashes of their keys: of 50,000 that counts."""
        partitions = self.partitions | dict.fromkeys(added, False)
        partitions.update(self.partitions)
        self.partitions = partitions

    def forget(self, partition: TopicIdPartition) -> None:
        """Fetch this one no more, if it was."""
        self.partitions.pop(partition, None)

    def advance(self) -> None:
        """The next request was taken."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def rotated(self) -> list[TopicIdPartition]:
        """Its partitions, each time beginning with another one, so that all get their turn."""
        partitions = list(self.partitions)
        begin = self.epoch % len(partitions) if partitions else 0
        return partitions[begin:] + partitions[:begin]


class ShareSessions:
    """The sessions of the members that fetch from this node."""

    def __init__(self, slots: int, *, max_partitions: int = MAX_PARTITIONS_IN_SESSIONS) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._members: dict[str, int] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """How many partitions all sessions name together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def owned_by(self, connection: object) -> list[ShareSession]:
        """The sessions that go over a connection."""
        return [session for session in self._sessions.values() if session.owner is connection]

    def has_members(self, group_id: str) -> bool:
        """Whether some member of a group has a session here."""
        return group_id in self._members

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        added: Collection[TopicIdPartition],
        *,
        has_acknowledgements: bool,
        owner: object,
    ) -> ShareSession | None:
        """Take a ShareFetch into its session, which it may begin; None if it ends the session. Raises ShareError."""
        if epoch == FINAL_EPOCH:
            self._require(key)
            return None
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                raise InvalidAcknowledgementError("a session does not begin with acknowledgements")
            self.remove(key)
            if len(self._sessions) >= self._slots:
                raise ShareSessionLimitReachedError(f"there are {len(self._sessions)} share sessions already")
            self._require_room(added)
            session = self._sessions[key] = ShareSession(key, added, owner)
            self._members[key.group_id] = self._members.get(key.group_id, 0) + 1
            return session
        session = self._require(key, epoch)
        if added:
            self._require_room(added)
            session.add(added)
        session.advance()
        return session

    def acknowledge(self, key: SessionKey, epoch: int) -> None:
        """Take a ShareAcknowledge into its session. Raises ShareError."""
        if epoch == INITIAL_EPOCH:
            raise InvalidShareSessionEpochError("a session begins with a fetch")
        if epoch == FINAL_EPOCH:
            self._require(key)
        else:
            self._require(key, epoch).advance()

    def remove(self, key: SessionKey, *, is_evicted: bool = False) -> ShareSession | None:
        """End a session, by its member or because its connection has ended; None if there is none."""
        self.evictions += is_evicted
        session = self._sessions.pop(key, None)
        if session is not None:
            left = self._members.pop(key.group_id) - 1
            if left:
                self._members[key.group_id] = left
        return session

    def _require_room(self, added: Collection[TopicIdPartition]) -> None:
        if self.partition_count + len(added) > self._max_partitions:
            raise ShareSessionLimitReachedError(f"share sessions have {self.partition_count} partitions")

    def _require(self, key: SessionKey, epoch: int | None = None) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFoundError(f"{key.member_id} has no share session")
        if epoch is not None and session.epoch != epoch:
            raise InvalidShareSessionEpochError(f"the session expects epoch {session.epoch}, not {epoch}")
        return session
