"""A member of a streams group (KIP-1071): what it said, and where it stands. Plain state.

Kafka's counterpart is StreamsGroupMember.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.coordinator.group.modern.static_members import LEAVE_STATIC_EPOCH, StaticMember
from ottla.coordinator.group.streams.assignor import NONE, Tasks, TaskSet
from ottla.coordinator.group.streams.task_offsets import NOTHING_REPORTED, TaskOffsets


class StreamsMemberState(IntEnum):
    """How far a member is with its target; the numbers are those of the record."""

    STABLE = 0
    UNREVOKED_TASKS = 1
    UNRELEASED_TASKS = 2


class Endpoint(NamedTuple):
    """The address at which an application answers queries (`application.server`)."""

    host: str
    port: int


class StreamsSubscription(NamedTuple):
    """A member's subscription: the content of its metadata record."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = {}
    instance_id: str | None = None

    def runs_as(self, other: StreamsSubscription) -> bool:
        """Whether a static member that says this instead of the other needs no new assignment."""
        return (self.topology_epoch, self.rack_id, self.client_tags, self.process_id) == (
            other.topology_epoch,
            other.rack_id,
            other.client_tags,
            other.process_id,
        )


class HeldTasks(NamedTuple):
    """Tasks that a member holds; the active ones with the epoch at which it was given each (KIP-1251)."""

    active: Mapping[str, Mapping[int, int]] = MappingProxyType({})
    standby: Tasks = NONE
    warmup: Tasks = NONE

    def __bool__(self) -> bool:
        return any(self)

    def without_epochs(self) -> TaskSet:
        """The same tasks as an assignment."""
        active = {name: frozenset(epochs) for name, epochs in self.active.items()}
        return TaskSet(active, self.standby, self.warmup)


NOTHING_HELD: Final = HeldTasks()


class StreamsCurrent(NamedTuple):
    """A member's current assignment: the content of its record."""

    epoch: int = 0
    previous_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    pending_revocation: HeldTasks = NOTHING_HELD

    def away(self) -> StreamsCurrent:
        """The state of a static member that has left temporarily: pending revocations are released, its assignment is
        kept, and the member that replaces it may commit with any epoch.
        """
        active = {name: dict.fromkeys(epochs, 0) for name, epochs in self.assigned.active.items()}
        assigned = self.assigned._replace(active=active)
        return self._replace(epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending_revocation=NOTHING_HELD)

    def back(self) -> StreamsCurrent:
        """The state of a member that replaces a static one."""
        return self._replace(epoch=0, previous_epoch=0)


class StreamsMember(StaticMember[StreamsSubscription, StreamsCurrent]):
    """One member. By its `rebalance_deadline` it must have revoked the tasks that it is to revoke now."""

    __slots__ = ("offsets",)

    def __init__(self, member_id: str, subscription: StreamsSubscription, current: StreamsCurrent) -> None:
        super().__init__(member_id, subscription, current)
        self.offsets: TaskOffsets = NOTHING_REPORTED
        """In memory alone."""

    def check_epoch(self, epoch: int, owned: TaskSet | None) -> None:
        """Whether a heartbeat with this epoch may be answered. Raises FencedMemberEpochError."""
        self._check_epoch(
            "streams", epoch, lambda: owned is not None and _contains(self.current.assigned.without_epochs(), owned)
        )


def _contains(held: TaskSet, owned: TaskSet) -> bool:
    """Whether all that a member says it owns is assigned to it."""
    return all(
        name in mine and indexes <= mine[name]
        for mine, theirs in zip(held, owned, strict=True)
        for name, indexes in theirs.items()
    )
