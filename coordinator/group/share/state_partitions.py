"""The share partitions of a group for which delivery state is being set up, is set up, or is being deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator


class TopicPartitions(NamedTuple):
    """Partitions of a topic, with the name that it has now."""

    name: str
    partitions: frozenset[int]


Partitions = Mapping[UUID, TopicPartitions]
"""Partitions by topic id."""


class StatePartitions(NamedTuple):
    """Partitions whose delivery state is being initialized, initialized, or being deleted: one record's content."""

    initializing: Mapping[UUID, TopicPartitions] = {}
    initialized: Mapping[UUID, TopicPartitions] = {}
    deleting: Mapping[UUID, str] = {}

    def beginning(self, begun: Mapping[UUID, TopicPartitions]) -> StatePartitions:
        """With partitions that are now being set up."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in begun}
        return StatePartitions(_with(self.initializing, begun), self.initialized, deleting)

    def begun(self, done: Mapping[UUID, TopicPartitions]) -> StatePartitions:
        """With partitions that are set up now."""
        return StatePartitions(without(self.initializing, done), _with(self.initialized, done), self.deleting)

    def given_up(self, failed: Mapping[UUID, TopicPartitions]) -> StatePartitions:
        """Without partitions that could not be set up."""
        return self._replace(initializing=without(self.initializing, failed))

    def ending(self, topics: Mapping[UUID, str]) -> StatePartitions:
        """With topics whose state is being deleted."""
        left = self.without(topics)
        return left._replace(deleting={**self.deleting, **topics})

    def without(self, topics: Mapping[UUID, object]) -> StatePartitions:
        """Without any trace of topics."""
        return StatePartitions(
            {topic_id: each for topic_id, each in self.initializing.items() if topic_id not in topics},
            {topic_id: each for topic_id, each in self.initialized.items() if topic_id not in topics},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics},
        )

    def topics(self) -> dict[UUID, str]:
        """All topics that are named, with their names."""
        named = {topic_id: each.name for topic_id, each in (*self.initializing.items(), *self.initialized.items())}
        return {**self.deleting, **named}

    def partitions(self) -> Iterator[tuple[UUID, int]]:
        """All partitions that may have delivery state."""
        known: dict[UUID, set[int]] = {}
        for topic_id, each in (*self.initializing.items(), *self.initialized.items()):
            known.setdefault(topic_id, set()).update(each.partitions)
        for topic_id, indexes in known.items():
            for index in sorted(indexes):
                yield topic_id, index


class Attempt:
    """An attempt to initialize partitions. Partitions that change otherwise meanwhile are taken out of `wanted`."""

    __slots__ = ("wanted",)

    def __init__(self, wanted: Mapping[UUID, TopicPartitions]) -> None:
        self.wanted = dict(wanted)

    def give_up(self, others: Partitions) -> None:
        """Somebody else sets these up from now on."""
        self.wanted = without(self.wanted, others)

    def wants(self, topic_id: UUID, partition: int) -> bool:
        """Whether what comes of a partition counts still."""
        return topic_id in self.wanted and partition in self.wanted[topic_id].partitions


def _with(some: Partitions, more: Partitions) -> dict[UUID, TopicPartitions]:
    joined = dict(some)
    for topic_id, (name, partitions) in more.items():
        known = joined.get(topic_id)
        joined[topic_id] = TopicPartitions(name, partitions if known is None else known.partitions | partitions)
    return joined


def without(some: Partitions, less: Partitions) -> dict[UUID, TopicPartitions]:
    """Some partitions without others."""
    left = {}
    for topic_id, (name, partitions) in some.items():
        remaining = partitions - less[topic_id].partitions if topic_id in less else partitions
        if remaining:
            left[topic_id] = TopicPartitions(name, remaining)
    return left
