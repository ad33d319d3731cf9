"""What the records of consumer, share and streams groups have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.kproto.internal_records.coordinator import build_key, build_value
from ottla.server.coordinator.replay import CoordinatorRecord

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from ottla.kproto.internal_records.coordinator import CoordinatorKey, CoordinatorValue
    from ottla.server.coordinator.group.assignors import Assignment

_VALUE_VERSION: Final = 0


class _TopicPartitions(Protocol):
    topic_id: UUID
    partitions: list[int]


def record(key: CoordinatorKey, value: CoordinatorValue) -> CoordinatorRecord:
    return CoordinatorRecord(build_key(key), build_value(value, _VALUE_VERSION))


def tombstone(key: CoordinatorKey) -> CoordinatorRecord:
    """The record that removes what a key names."""
    return CoordinatorRecord(build_key(key), None)


def stored_assignment(partitions: Iterable[_TopicPartitions]) -> Assignment:
    """An assignment as it was stored."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in partitions if topic.partitions}
