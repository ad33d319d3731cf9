"""A streams group (KIP-1071): its epochs, topology, members, target and current tasks. Plain state.

All of it comes from records: `replay` is called with what is committed, at load and after each write. What is kept in
memory alone (the configured topology, a requested shutdown, the epoch of the endpoints) is marked as such.

    EMPTY        no members
    NOT_READY    the topology was not found valid yet: topics are missing, or have the wrong numbers of partitions
    ASSIGNING    the target assignment is older than the group
    RECONCILING  some member has not reached its target yet
    STABLE       everyone has
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from ottla.coordinator.errors import StaleMemberEpochError
from ottla.coordinator.group.group import OffsetExpiry
from ottla.coordinator.group.modern.static_members import StaticGroup
from ottla.coordinator.group.streams import records
from ottla.coordinator.group.streams.assignor import NO_TASKS, TaskSet
from ottla.coordinator.group.streams.description import Asking
from ottla.coordinator.group.streams.member import (
    StreamsCurrent,
    StreamsMember,
    StreamsMemberState,
    StreamsSubscription,
)
from ottla.coordinator.group.streams.owners import Owners
from ottla.coordinator.group.streams.records import GroupMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
    from ottla.coordinator.group.streams.topology import ConfiguredTopology, Topology
    from ottla.kproto.internal_records.coordinator import CoordinatorKey


class StreamsGroupState(Enum):
    """Values are the names that the administrative APIs answer with."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsGroup(StaticGroup[StreamsMember, StreamsSubscription, StreamsCurrent, TaskSet]):
    """One group, as its committed records describe it."""

    __slots__ = (
        "asking",
        "assignment_configs",
        "checked_version",
        "configured",
        "delayed_until",
        "description",
        "endpoint_epoch",
        "failed_description_epoch",
        "owners",
        "shutdown_requester",
        "topology",
        "validated_topology_epoch",
    )

    kind = "streams"
    gives_way = frozenset({"classic"})
    record_types = records.RECORDS

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        """The settings that the target was computed with."""
        self.topology: Topology | None = None
        self.description: bytes | None = None
        """How the topology is described, as it is kept (`description.py`)."""
        self.failed_description_epoch = -1
        """The epoch of a topology whose description was refused: it is not asked for again."""
        self.owners = Owners()
        # In memory alone
        self.asking = Asking()
        self.configured: ConfiguredTopology | None = None
        self.checked_version = -1
        """The revision of the cluster's metadata at which the topology's topics were last looked at."""
        self.delayed_until = float("-inf")
        """Until then, on Trio's clock, a new group waits for more members before its first assignment."""
        self.shutdown_requester: str | None = None
        self.endpoint_epoch = 0

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.target_epoch:
            return StreamsGroupState.ASSIGNING
        for member in self.members.values():
            current = member.current
            if current.state is not StreamsMemberState.STABLE or current.epoch != self.target_epoch:
                return StreamsGroupState.RECONCILING
        return StreamsGroupState.STABLE

    def metadata(self) -> GroupMetadata:
        """The content of its metadata record."""
        return GroupMetadata(
            self.group_epoch,
            self.metadata_hash,
            self.validated_topology_epoch,
            self.assignment_configs,
            self.failed_description_epoch,
        )

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that the group reads while it has members."""
        return frozenset(self.topology.source_topics) if self.members and self.topology is not None else frozenset()

    # Offsets

    def undeletable_topics(self) -> frozenset[str]:
        return self.subscribed_topics()

    def offset_expiry(self) -> OffsetExpiry:
        return OffsetExpiry(None, self.subscribed_topics())

    def validate_offset_fetch(self, member_id: str, member_epoch: int) -> None:
        """Raises UnknownMemberIdError or StaleMemberEpochError."""
        expected = self.find_member(member_id).current.epoch
        if member_epoch != expected:
            raise StaleMemberEpochError(
                f"The received member epoch {member_epoch} does not match the expected member epoch {expected}."
            )

    def _validate_commit(
        self, member_id: str, member_epoch: int, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> None:
        """Whether a member may commit these offsets, also with an epoch before its current one.

        An older epoch is good for the tasks that the member has held since then (KIP-1251). Raises as
        `validate_offset_fetch` does.
        """
        current = self.find_member(member_id).current
        if member_epoch == current.epoch:
            return
        if member_epoch > current.epoch:
            raise StaleMemberEpochError(
                f"Received member epoch {member_epoch} is newer than current member epoch {current.epoch}."
            )
        if self.topology is None:
            raise StaleMemberEpochError("Topology is not available for offset commit validation.")
        for topic, index in offsets:
            subtopology = self.topology.source_topics.get(topic)
            if subtopology is None:
                raise StaleMemberEpochError(f"Topic {topic} is not in the topology.")
            given = current.assigned.active.get(subtopology, {}).get(index)
            if given is None:
                given = current.pending_revocation.active.get(subtopology, {}).get(index)
            if given is None:
                raise StaleMemberEpochError(
                    f"Task {subtopology}-{index} is not assigned or pending revocation for member."
                )
            if member_epoch < given:
                raise StaleMemberEpochError(
                    f"Received member epoch {member_epoch} is older than assignment epoch {given} for task "
                    f"{subtopology}-{index}."
                )

    # Records

    def _replay_metadata(self, value: Any) -> None:
        if value is None:
            return
        metadata = records.read_group_metadata(value)
        self.group_epoch = metadata.epoch
        self.metadata_hash = metadata.metadata_hash
        self.validated_topology_epoch = metadata.validated_topology_epoch
        self.assignment_configs = metadata.assignment_configs
        self.failed_description_epoch = metadata.failed_description_epoch

    def replay_member(self, member_id: str, subscription: StreamsSubscription | None) -> None:
        super().replay_member(member_id, subscription)
        if not self.members:
            self.withdraw_shutdown()

    def _own_keys(self) -> list[CoordinatorKey]:
        return [*super()._own_keys(), self.record_types.own(group_id=self.group_id)]

    def _replay_own(self, key: Any, value: Any) -> None:
        if value is None:
            self._replay_topology(None)
        else:
            self._replay_topology(*records.read_topology(value))

    @property
    def no_target(self) -> TaskSet:
        return NO_TASKS

    def _new_member(self, member_id: str) -> StreamsMember:
        return StreamsMember(member_id, StreamsSubscription(), StreamsCurrent())

    def _new_current(self) -> StreamsCurrent:
        return StreamsCurrent()

    def _hold(self, member: StreamsMember) -> None:
        self.owners.add(member.current, member.subscription.process_id)

    def _release(self, member: StreamsMember) -> None:
        self.owners.remove(member.current, member.subscription.process_id)

    def _replay_topology(self, topology: Topology | None, description: bytes | None = None) -> None:
        if topology != self.topology:
            self.configured = None
        self.topology, self.description = topology, description

    # What is kept in memory

    def configure(self, configured: ConfiguredTopology, version: int) -> None:
        """Keep the outcome of comparing the topology with the cluster's topics at a revision of the metadata."""
        self.configured, self.checked_version = configured, version

    def request_shutdown(self, member_id: str) -> bool:
        """A member wants the whole application to end. Returns whether it is the first to ask."""
        is_first = self.shutdown_requester is None
        if is_first:
            self.shutdown_requester = member_id
        return is_first

    def withdraw_shutdown(self) -> None:
        """Nobody is left who was to end."""
        self.shutdown_requester = None

    def asks_for_description(self, now: float) -> bool:
        """Whether to ask a member for the description of the topology, on Trio's clock."""
        if self.topology is None or self.description is not None or now < self.asking.next_at:
            return False
        if self.topology.epoch < 0 or self.topology.epoch == self.failed_description_epoch:
            return False
        self.asking = self.asking.asked(now)
        return True

    def delay(self, until: float) -> None:
        """Wait for more members before the first assignment."""
        self.delayed_until = until

    def endpoints_changed(self) -> None:
        """The endpoints that members get in heartbeats have changed."""
        self.endpoint_epoch += 1

    def count_endpoints_from(self, epoch: int) -> None:
        """Members know the epochs of another coordinator, and are to take none of this one's for one of these."""
        self.endpoint_epoch = epoch
