"""A share group (KIP-932): its epochs, members and assignments, and where delivery state is set up. Plain state.

All of it comes from records: `replay_…` is called with what is committed, at load and after each write.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.server.coordinator.errors import FencedMemberEpochError
from ottla.server.coordinator.group.assignors import EMPTY_ASSIGNMENT, Assignment
from ottla.server.coordinator.group.modern_group import JOIN_EPOCH, ModernGroup, ModernMember

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

PROTOCOL_TYPE: Final = "share"
ASSIGNOR_NAME: Final = "simple"


class ShareGroupState(Enum):
    """Values are the names that the administrative APIs answer with."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareSubscription(NamedTuple):
    """What a member said about itself: the content of its metadata record."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()


class ShareCurrent(NamedTuple):
    """Where a member stands: the content of its current-assignment record."""

    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = EMPTY_ASSIGNMENT


class ShareMember(ModernMember[ShareSubscription, ShareCurrent]):
    """One member."""

    __slots__ = ()

    def check_epoch(self, epoch: int) -> None:
        """A heartbeat must carry the current epoch, the previous one if its answer was lost, or that of a join."""
        current = self.current
        if epoch == JOIN_EPOCH or epoch in (current.epoch, current.previous_epoch):
            return
        known = f"known by the group coordinator ({current.epoch})"
        if epoch > current.epoch:
            raise FencedMemberEpochError(
                f"The share group member has a greater member epoch ({epoch}) than the one {known}. "
                "The member must abandon all its partitions and rejoin."
            )
        raise FencedMemberEpochError(
            f"The share group member has a smaller member epoch ({epoch}) than the one {known}. "
            "The member must abandon all its partitions and rejoin."
        )


class TopicPartitions(NamedTuple):
    """Partitions of a topic, with the name that it has now."""

    name: str
    partitions: frozenset[int]


class StatePartitions(NamedTuple):
    """Where delivery state is being set up, is set up, or is being deleted: the content of one record."""

    initializing: Mapping[UUID, TopicPartitions] = {}
    initialized: Mapping[UUID, TopicPartitions] = {}
    deleting: Mapping[UUID, str] = {}

    def beginning(self, begun: Mapping[UUID, TopicPartitions]) -> StatePartitions:
        """With partitions that are now being set up."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in begun}
        return StatePartitions(_with(self.initializing, begun), self.initialized, deleting)

    def begun(self, done: Mapping[UUID, TopicPartitions]) -> StatePartitions:
        """With partitions that are set up now."""
        return StatePartitions(_without(self.initializing, done), _with(self.initialized, done), self.deleting)

    def given_up(self, failed: Mapping[UUID, TopicPartitions]) -> StatePartitions:
        """Without partitions that could not be set up."""
        return self._replace(initializing=_without(self.initializing, failed))

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
    """What a broker is setting up. What is changed otherwise meanwhile is taken out of `wanted`."""

    __slots__ = ("wanted",)

    def __init__(self, wanted: Mapping[UUID, TopicPartitions]) -> None:
        self.wanted = dict(wanted)

    def wants(self, topic_id: UUID, partition: int) -> bool:
        """Whether what comes of a partition counts still."""
        return topic_id in self.wanted and partition in self.wanted[topic_id].partitions


def _with(some: Mapping[UUID, TopicPartitions], more: Mapping[UUID, TopicPartitions]) -> dict[UUID, TopicPartitions]:
    joined = dict(some)
    for topic_id, (name, partitions) in more.items():
        known = joined.get(topic_id)
        joined[topic_id] = TopicPartitions(name, partitions if known is None else known.partitions | partitions)
    return joined


def _without(some: Mapping[UUID, TopicPartitions], less: Mapping[UUID, TopicPartitions]) -> dict[UUID, TopicPartitions]:
    left = {}
    for topic_id, (name, partitions) in some.items():
        remaining = partitions - less[topic_id].partitions if topic_id in less else partitions
        if remaining:
            left[topic_id] = TopicPartitions(name, remaining)
    return left


class ShareGroup(ModernGroup[ShareMember, ShareSubscription, ShareCurrent, Assignment]):
    """One group, as its committed records describe it."""

    __slots__ = ("attempts", "initializing_since_ms", "seen", "state_partitions")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_partitions = StatePartitions()
        self.initializing_since_ms: dict[UUID, int] = {}
        """When this broker began to set up each topic. Not stored: a new coordinator begins again."""
        self.attempts: set[Attempt] = set()
        """What this broker is setting up now."""
        self.seen: tuple[int, StatePartitions] | None = None
        """The revision of the cluster's metadata, and the state, with which the group's target was last looked at."""

    def attempt(self, wanted: Mapping[UUID, TopicPartitions], now_ms: int) -> Attempt:
        """That these partitions are to be set up is committed: somebody does so from now on.

        Whoever has begun with one of them before has taken too long, and what comes of it counts for nothing: its epoch
        may be an earlier one.
        """
        self.initializing_since_ms.update(dict.fromkeys(wanted, now_ms))
        for former in self.attempts:
            former.wanted = _without(former.wanted, wanted)
        attempt = Attempt(wanted)
        self.attempts.add(attempt)
        return attempt

    def overtake(self, topics: Iterable[UUID]) -> None:
        """The state of these topics is changed otherwise: what is being set up of them counts for nothing."""
        for topic_id in topics:
            self.initializing_since_ms.pop(topic_id, None)
            for attempt in self.attempts:
                attempt.wanted.pop(topic_id, None)

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    # Replay

    @property
    def kind(self) -> str:
        return "share"

    @property
    def no_target(self) -> Assignment:
        return EMPTY_ASSIGNMENT

    def _new_member(self, member_id: str) -> ShareMember:
        return ShareMember(member_id, ShareSubscription(), ShareCurrent())

    def _new_current(self) -> ShareCurrent:
        return ShareCurrent()
