"""The interface of every group, whatever protocol its members speak. Plain state, no waiting, no I/O.

Kafka's counterpart is org.apache.kafka.coordinator.group.Group. A kind of group is added by a class below this one, a
`GroupProtocol` that runs it, and its line among the coordinator's protocols (`coordinator.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ottla.coordinator.errors import GroupIdNotFoundError

if TYPE_CHECKING:
    from enum import Enum

    from ottla.coordinator.replay import CoordinatorRecord


class Committer(NamedTuple):
    """Who commits offsets, as OffsetCommit and TxnOffsetCommit say it. An epoch is given as the generation.

    `knows_epochs`: the request's version is one that members of KIP-848 may commit with.
    """

    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1
    is_transactional: bool = False
    knows_epochs: bool = True


class OffsetExpiry(NamedTuple):
    """Which offsets of a group retention may remove (Kafka's OffsetExpirationCondition).

    `since_ms` is when the group became empty, None to count from each commit. Offsets of `subscribed` topics stay.
    """

    since_ms: int | None
    subscribed: frozenset[str]


class Group(ABC):
    """One group. One id is one group at a time, of one kind."""

    __slots__ = ()

    kind: ClassVar[str]
    """The name of this kind of group in ListGroups (KIP-848's group type), and in messages."""
    gives_way: ClassVar[frozenset[str]] = frozenset()
    """The kinds to which an empty group leaves its id. Its offsets stay."""

    group_id: str
    members: dict[str, Any]

    @property
    @abstractmethod
    def state(self) -> Enum:
        """Its value is the name that the administrative APIs answer with."""

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """The protocol type of the members: `consumer`, `connect`, `share`, `streams`."""

    @classmethod
    @abstractmethod
    def key_types(cls) -> tuple[type, ...]:
        """The keys of a group's records. A tombstone of the first one removes the group."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The tombstones of the group, without those of its offsets."""

    def is_empty(self) -> bool:
        """Whether the group has no members, and nobody joins it."""
        return not self.members

    def is_awaited(self) -> bool:
        """Whether somebody was given a member id and has not joined with it yet."""
        return False

    def gives_way_to(self, kind: str) -> bool:
        """Whether a group of another kind may take this one's id."""
        return kind in self.gives_way and self.is_empty()

    # Offsets

    @abstractmethod
    def validate_offset_fetch(self, member_id: str, member_epoch: int) -> None:
        """Whether somebody who names a member, or an epoch, may read offsets. Raises CoordinatorError."""

    def undeletable_topics(self) -> frozenset[str] | None:
        """The topics whose offsets OffsetDelete must leave; None for all topics.

        Raises GroupIdNotFoundError, or NonEmptyGroupError for a group of other members than consumers.
        """
        raise GroupIdNotFoundError(f"Group {self.group_id} is not a consumer group.")

    def offset_expiry(self) -> OffsetExpiry | None:
        """Which offsets expire; None if none does now."""
        return None
