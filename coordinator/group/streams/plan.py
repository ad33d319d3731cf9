"""The streams group as it will be once a heartbeat is committed: its topology, epochs and target."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from ottla.coordinator.errors import InvalidRequestError
from ottla.coordinator.group.streams import records
from ottla.coordinator.group.streams.assignor import (
    NO_TASKS,
    StreamsMemberSpec,
    SubtopologySpec,
    TaskSet,
    sticky_assignor,
)
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.heartbeat import STANDBY_COUNT
from ottla.coordinator.group.streams.member import StreamsMember, StreamsSubscription
from ottla.coordinator.group.streams.records import GroupMetadata
from ottla.coordinator.group.streams.task_offsets import TaskOffsets
from ottla.coordinator.group.streams.topology import (
    ConfiguredTopology,
    HeartbeatStatus,
    StreamsStatus,
    Topology,
    configure,
)
from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.replay import CoordinatorRecord

logger = logging.getLogger(__name__)

ON_THE_LOOP: Final = 100
"""So many topics are looked at, or tasks and members assigned, in less than 500 µs; more in a worker thread."""

NOT_VALIDATED: Final = -1


class StreamsPlan:
    """One member's heartbeat, as the group will see it once its records are committed."""

    configured: ConfiguredTopology

    def __init__(
        self,
        group: StreamsGroup,
        topics: GroupTopics,
        given: Topology | None,
        configs: Mapping[str, str],
    ) -> None:
        """A plan for the present members; `given` is the topology in a member's heartbeat, `configs` are the settings
        that an assignment depends on. Raises InvalidRequestError if the topology is not the group's.
        """
        self.group = group
        self.epoch = group.group_epoch
        self.target: Mapping[str, TaskSet] = group.target
        #: What the member is told if its topology is an older one.
        self.staleness: HeartbeatStatus | None = None
        self._topics = topics
        self._version = topics.version
        self._configs = configs
        self._hash = group.metadata_hash
        self._members: dict[str, StreamsMemberSpec] = {
            each.member_id: _spec(each, each.subscription, each.offsets) for each in group.members.values()
        }
        self._member_records: list[CoordinatorRecord] = []
        self._is_outdated = False
        self.topology = _common_topology(group, given)

    @classmethod
    def of_all(cls, group: StreamsGroup, topics: GroupTopics) -> StreamsPlan:
        """A plan for a new target alone, with the settings that the group has stored."""
        return cls(group, topics, None, {STANDBY_COUNT: "0", **group.assignment_configs})

    def take_in(
        self,
        member_id: str,
        former: StreamsMember | None,
        subscription: StreamsSubscription,
        offsets: TaskOffsets,
        *,
        as_static: bool,
    ) -> None:
        """Apply a heartbeat. `former` is the member as it was, under another id if a static one takes its place.

        Of a static member that says so (`as_static`) only what its tasks depend on calls for a new assignment.
        """
        group = self.group
        before = StreamsSubscription() if former is None else former.subscription
        replaced = None if former is None or former.member_id == member_id else former.member_id
        if replaced is not None:
            inherited = group.target_of(replaced)
            self._members.pop(replaced)
            self._member_records += records.RECORDS.member_tombstones(group.group_id, replaced)
            self._member_records.append(records.target_assignment(group.group_id, member_id, inherited))
            self.target = {each: tasks for each, tasks in self.target.items() if each != replaced}
            self.target[member_id] = inherited
        if former is None or replaced is not None or subscription != before:
            self._member_records.append(records.member_subscription(group.group_id, member_id, subscription))
        self._is_outdated = not subscription.runs_as(before) if as_static else former is None or subscription != before
        self._members[member_id] = _spec(former, subscription, offsets)._replace(member_id=member_id)
        self.staleness = _staleness(group, subscription)

    async def look_at_topics(self) -> None:
        """Compare the topology with the cluster's topics, unless that was done for the current topics.

        Raises StreamsInvalidTopologyError.
        """
        group, topology = self.group, self.topology
        configured = group.configured
        if configured is not None and group.topology is not None and group.checked_version == self._version:
            self.configured = configured
            return
        self._hash = await self._topics.metadata_hash(topology.required_topics)
        if configured is not None and group.topology is not None and self._hash == group.metadata_hash:
            self.configured = configured
            return
        look = partial(configure, topology, self._topics.partition_count)
        is_large = len(topology.required_topics) > ON_THE_LOOP
        self.configured = await trio.to_thread.run_sync(look) if is_large else look()
        problem = self.configured.problem
        if problem is not None:
            keys = {"group": group.group_id}
            logger.info("group %s cannot run its topology yet: %s", group.group_id, problem.detail, extra=keys)

    def changes(self) -> list[CoordinatorRecord]:
        """The records that follow from the member and the topics, except those of the target."""
        group = self.group
        written = list(self._member_records)
        if group.topology is None:
            written.append(records.topology(group.group_id, self.topology))
        validated = self.topology.epoch if self.configured.is_ready else NOT_VALIDATED
        if (
            self._is_outdated
            or self._hash != group.metadata_hash
            or validated != group.validated_topology_epoch
            or self._configs != group.assignment_configs
        ):
            self.epoch += 1
            metadata = GroupMetadata(self.epoch, self._hash, validated, self._configs, group.failed_description_epoch)
            written.append(records.group_metadata(group.group_id, metadata))
        return written

    async def new_target(self, now_ms: int) -> list[CoordinatorRecord]:
        """Assign all tasks again; nobody has any while the topology cannot run."""
        group = self.group
        members = list(self._members.values())
        if self.configured.is_ready:
            specs = {
                name: SubtopologySpec(each.task_count, each.is_stateful)
                for name, each in self.configured.subtopologies.items()
            }
            assign = partial(sticky_assignor, members, specs, int(self._configs[STANDBY_COUNT]))
            reported = sum(len(member.offsets) for member in members)
            is_large = len(members) + reported + sum(spec.task_count for spec in specs.values()) > ON_THE_LOOP
            computed = await trio.to_thread.run_sync(assign) if is_large else assign()
        else:
            computed = {member.member_id: NO_TASKS for member in members}
        before, self.target = self.target, computed
        return [
            *(
                records.target_assignment(group.group_id, member_id, tasks)
                for member_id, tasks in self.target.items()
                if before.get(member_id) != tasks
            ),
            records.target_epoch(group.group_id, self.epoch, now_ms),
        ]

    def enter(self) -> None:
        """The records are committed: keep in the group what was found out about the topics."""
        self.group.configure(self.configured, self._version)


def _spec(member: StreamsMember | None, subscription: StreamsSubscription, offsets: TaskOffsets) -> StreamsMemberSpec:
    current = NO_TASKS if member is None else member.current.assigned.without_epochs()
    return StreamsMemberSpec(
        "" if member is None else member.member_id, subscription.process_id, current, offsets.offsets
    )


def _staleness(group: StreamsGroup, subscription: StreamsSubscription) -> HeartbeatStatus | None:
    if group.topology is None or subscription.topology_epoch >= group.topology.epoch:
        return None
    return HeartbeatStatus(
        StreamsStatus.STALE_TOPOLOGY,
        f"The member's topology epoch {subscription.topology_epoch} is behind the group's topology epoch "
        f"{group.topology.epoch}.",
    )


def _common_topology(group: StreamsGroup, given: Topology | None) -> Topology:
    """The group's topology; for a new group, the one that its first member gives."""
    if group.topology is None:
        if given is None:
            raise InvalidRequestError("The topology is null and the group topology is also null.")
        return given
    if given is not None and given.epoch >= group.topology.epoch and given != group.topology:
        raise InvalidRequestError("Topology updates are not supported yet.")
    return group.topology
