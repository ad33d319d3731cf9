"""A streams group (KIP-1071): its epochs, topology, members, target and current tasks. Plain state.

All of it comes from records: `replay_…` is called with what is committed, at load and after each write. What is kept in
memory alone (the configured topology, a requested shutdown, the epoch of the endpoints) is marked as such.

    EMPTY        no members
    NOT_READY    the topology was not found valid yet: topics are missing, or have the wrong numbers of partitions
    ASSIGNING    the target assignment is older than the group
    RECONCILING  some member has not reached its target yet
    STABLE       everyone has
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.server.coordinator.errors import StaleMemberEpochError
from ottla.server.coordinator.group.static_members import LEAVE_STATIC_EPOCH, StaticGroup, StaticMember
from ottla.server.coordinator.group.streams_assignor import NO_TASKS, NONE, Task, Tasks, TaskSet
from ottla.server.coordinator.group.streams_description import Asking
from ottla.server.coordinator.group.streams_offsets import NOTHING_REPORTED, TaskOffsets
from ottla.server.coordinator.group.streams_topology import ConfiguredTopology, Topology

PROTOCOL_TYPE: Final = "streams"


class StreamsGroupState(Enum):
    """Values are the names that the administrative APIs answer with."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsMemberState(IntEnum):
    """How far a member is with its target; the numbers are those of the record."""

    STABLE = 0
    UNREVOKED_TASKS = 1
    UNRELEASED_TASKS = 2


class Endpoint(NamedTuple):
    """Where an application answers queries (`application.server`)."""

    host: str
    port: int


class StreamsSubscription(NamedTuple):
    """What a member said about itself: the content of its metadata record."""

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
    """Where a member stands: the content of its current-assignment record."""

    epoch: int = 0
    previous_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    pending_revocation: HeldTasks = NOTHING_HELD

    def away(self) -> StreamsCurrent:
        """Where a static member that goes away for a while stands: what it was to revoke is free, what it was assigned
        stays its own, and whoever comes back commits with any epoch.
        """
        active = {name: dict.fromkeys(epochs, 0) for name, epochs in self.assigned.active.items()}
        assigned = self.assigned._replace(active=active)
        return self._replace(epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending_revocation=NOTHING_HELD)

    def back(self) -> StreamsCurrent:
        """Where who takes a static member's place starts."""
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


class Owners:
    """Which processes hold each task, by role. A process holds a task only once, whichever of its members has it."""

    __slots__ = ("_active", "_standby", "_warmup")

    def __init__(self) -> None:
        self._active: dict[Task, str] = {}
        self._standby: dict[Task, set[str]] = {}
        self._warmup: dict[Task, set[str]] = {}

    def is_active_anywhere(self, task: Task) -> bool:
        return task in self._active

    def has_active(self, task: Task, process_id: str) -> bool:
        return self._active.get(task) == process_id

    def has_copy(self, task: Task, process_id: str) -> bool:
        """Whether the process has the task as a standby or warm-up task."""
        return process_id in self._standby.get(task, ()) or process_id in self._warmup.get(task, ())

    def add(self, current: StreamsCurrent, process_id: str) -> None:
        """A member of the process holds these now."""
        for held in (current.assigned, current.pending_revocation):
            tasks = held.without_epochs()
            self._active.update(dict.fromkeys(each_task(tasks.active), process_id))
            for role, table in ((tasks.standby, self._standby), (tasks.warmup, self._warmup)):
                for task in each_task(role):
                    table.setdefault(task, set()).add(process_id)

    def remove(self, current: StreamsCurrent, process_id: str) -> None:
        """A member of the process no longer holds these."""
        for held in (current.assigned, current.pending_revocation):
            tasks = held.without_epochs()
            for task in each_task(tasks.active):
                if self._active.get(task) == process_id:
                    del self._active[task]
            for role, table in ((tasks.standby, self._standby), (tasks.warmup, self._warmup)):
                for task in each_task(role):
                    left = table.get(task)
                    if left is not None:
                        left.discard(process_id)
                        if not left:
                            del table[task]


class GroupSaid(NamedTuple):
    """The content of a group's metadata record."""

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    assignment_configs: Mapping[str, str]
    failed_description_epoch: int = -1


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

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        """The settings that the target was computed with."""
        self.topology: Topology | None = None
        self.description: bytes | None = None
        """How the topology is described, as it is kept (`streams_description`)."""
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

    def said(self) -> GroupSaid:
        """What its metadata record says."""
        return GroupSaid(
            self.group_epoch,
            self.metadata_hash,
            self.validated_topology_epoch,
            self.assignment_configs,
            self.failed_description_epoch,
        )

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that the group reads while it has members."""
        return frozenset(self.topology.source_topics) if self.members and self.topology is not None else frozenset()

    def validate_fetch(self, member_id: str, member_epoch: int) -> None:
        """Whether a member may read offsets. Raises UnknownMemberIdError or StaleMemberEpochError."""
        expected = self.find_member(member_id).current.epoch
        if member_epoch != expected:
            raise StaleMemberEpochError(
                f"The received member epoch {member_epoch} does not match the expected member epoch {expected}."
            )

    def validate_commit(self, member_id: str, member_epoch: int, partitions: Iterable[tuple[str, int]]) -> None:
        """Whether a member may commit offsets of these partitions, also with an epoch before its current one.

        An older epoch is good for the tasks that the member has held since then (KIP-1251). Raises as
        `validate_fetch` does.
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
        for topic, index in partitions:
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

    # Replay

    def replay_metadata(self, said: GroupSaid) -> None:
        self.group_epoch = said.epoch
        self.metadata_hash = said.metadata_hash
        self.validated_topology_epoch = said.validated_topology_epoch
        self.assignment_configs = said.assignment_configs
        self.failed_description_epoch = said.failed_description_epoch

    def replay_member(self, member_id: str, subscription: StreamsSubscription | None) -> None:
        super().replay_member(member_id, subscription)
        if not self.members:
            self.withdraw_shutdown()

    @property
    def kind(self) -> str:
        return "streams"

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

    def replay_topology(self, topology: Topology | None, description: bytes | None = None) -> None:
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
        """What members are told about each other's endpoints has changed."""
        self.endpoint_epoch += 1

    def count_endpoints_from(self, epoch: int) -> None:
        """Members know the epochs of another coordinator, and are to take none of this one's for one of these."""
        self.endpoint_epoch = epoch


def each_task(tasks: Tasks) -> Iterator[Task]:
    """The tasks of one role, one by one."""
    for name, indexes in tasks.items():
        for index in indexes:
            yield name, index


def _contains(held: TaskSet, owned: TaskSet) -> bool:
    """Whether all that a member says it owns is assigned to it."""
    return all(
        name in mine and indexes <= mine[name]
        for mine, said in zip(held, owned, strict=True)
        for name, indexes in said.items()
    )
