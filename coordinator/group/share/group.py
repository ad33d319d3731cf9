"""A share group (KIP-932): its epochs, members and assignments, and where delivery state is set up. Plain state.

All of it comes from records: `replay` is called with what is committed, at load and after each write.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.errors import GroupIdNotFoundError
from ottla.coordinator.group.assignment import EMPTY_ASSIGNMENT, Assignment
from ottla.coordinator.group.modern.group import ModernGroup
from ottla.coordinator.group.share import records
from ottla.coordinator.group.share.member import ShareCurrent, ShareMember, ShareSubscription
from ottla.coordinator.group.share.state_partitions import Attempt, StatePartitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from ottla.coordinator.group.group import Committer
    from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
    from ottla.coordinator.group.share.state_partitions import TopicPartitions
    from ottla.kproto.internal_records.coordinator import CoordinatorKey

ASSIGNOR_NAME: Final = "simple"


class ShareGroupState(Enum):
    """Values are the names that the administrative APIs answer with."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup(ModernGroup[ShareMember, ShareSubscription, ShareCurrent, Assignment]):
    """One group, as its committed records describe it."""

    __slots__ = ("attempts", "initializing_since_ms", "seen", "state_partitions")

    kind = "share"
    record_types = records.RECORDS

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_partitions = StatePartitions()
        self.initializing_since_ms: dict[UUID, int] = {}
        """The time at which this broker began to initialize each topic. Not stored: a new coordinator begins again."""
        self.attempts: set[Attempt] = set()
        """The attempts at initialization that this broker has under way."""
        self.seen: tuple[int, StatePartitions] | None = None
        """The revision of the cluster's metadata, and the state, with which the group's target was last looked at."""

    def looked_at(self, seen: tuple[int, StatePartitions]) -> None:
        """The group's target was looked at, at this revision of the metadata and with this state."""
        self.seen = seen

    def attempt(self, wanted: Mapping[UUID, TopicPartitions], now_ms: int) -> Attempt:
        """Begin an attempt to initialize these partitions, whose records are committed.

        An earlier attempt at one of them has timed out. Its result is ignored, because its epoch may be an older one.
        """
        self.initializing_since_ms.update(dict.fromkeys(wanted, now_ms))
        for former in self.attempts:
            former.give_up(wanted)
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

    # Offsets: a share group commits none.

    def validate_offset_commit(self, committer: Committer, offsets: Mapping[TopicPartition, OffsetToCommit]) -> None:
        raise GroupIdNotFoundError(f"Group {self.group_id} is not a consumer group.")

    def validate_offset_fetch(self, member_id: str, member_epoch: int) -> None:
        """Every OffsetFetch is answered as for a group that does not exist."""

    # Records

    def _own_keys(self) -> list[CoordinatorKey]:
        return [self.record_types.own(group_id=self.group_id), *super()._own_keys()]

    def _replay_own(self, key: Any, value: Any) -> None:
        self.state_partitions = StatePartitions() if value is None else records.read_state_partitions(value)

    @property
    def no_target(self) -> Assignment:
        return EMPTY_ASSIGNMENT

    def _new_member(self, member_id: str) -> ShareMember:
        return ShareMember(member_id, ShareSubscription(), ShareCurrent())

    def _new_current(self) -> ShareCurrent:
        return ShareCurrent()
