"""Common parts of the records of consumer, share and streams groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records.coordinator import build_key, build_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from ottla.coordinator.group.assignment import Assignment
    from ottla.kproto.internal_records.coordinator import CoordinatorKey, CoordinatorValue

_VALUE_VERSION: Final = 0


class _TopicPartitions(Protocol):
    topic_id: UUID
    partitions: list[int]


class ModernRecords(NamedTuple):
    """The record types of one kind of group: the classes of their keys, and how the values of some are read.

    A tombstone under `group` ends the group. `own` is what only this kind has: expressions, the state of share
    partitions, or the topology.
    """

    group: type[Any]
    member: type[Any]
    target_epoch: type[Any]
    target: type[Any]
    current: type[Any]
    own: type[Any]
    read_member: Callable[[Any], Any]
    read_target: Callable[[Any], Any]
    read_current: Callable[[Any], Any]

    @property
    def key_types(self) -> tuple[type, ...]:
        """All of them, the one that ends the group first."""
        return self.group, self.member, self.target_epoch, self.target, self.current, self.own

    def member_tombstones(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        """The tombstones of a member: its current and target assignment first, its subscription last."""
        return [
            tombstone(key(group_id=group_id, member_id=member_id)) for key in (self.current, self.target, self.member)
        ]


def record(key: CoordinatorKey, value: CoordinatorValue) -> CoordinatorRecord:
    return CoordinatorRecord(build_key(key), build_value(value, _VALUE_VERSION))


def tombstone(key: CoordinatorKey) -> CoordinatorRecord:
    """The record that removes what a key names."""
    return CoordinatorRecord(build_key(key), None)


class _Assigned(Protocol):
    topic_partitions: list[Any]


def read_target(value: _Assigned) -> Assignment:
    """The target of a member of a consumer or share group, as its record says it."""
    return stored_assignment(value.topic_partitions)


def stored_assignment(partitions: Iterable[_TopicPartitions]) -> Assignment:
    """An assignment as it was stored."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in partitions if topic.partitions}
