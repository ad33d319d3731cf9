"""What a streams group will be once a heartbeat is committed: its topology, its epochs and its target."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from ottla.server.coordinator.errors import InvalidRequestError
from ottla.server.coordinator.group import streams_records
from ottla.server.coordinator.group.streams_assignor import (
    NO_TASKS,
    StreamsMemberSpec,
    SubtopologySpec,
    TaskSet,
    sticky_assignor,
)
from ottla.server.coordinator.group.streams_group import StreamsGroup, StreamsSubscription
from ottla.server.coordinator.group.streams_topology import (
    ConfiguredTopology,
    StreamsStatus,
    Told,
    Topology,
    configure,
)
from ottla.server.coordinator.group.topics import GroupTopics
from ottla.server.coordinator.replay import CoordinatorRecord

logger = logging.getLogger(__name__)

ON_THE_LOOP: Final = 100
"""So many topics are looked at, or tasks and members assigned, in less than 500 µs; more in a worker thread."""

STANDBY_COUNT: Final = "num.standby.replicas"
NOT_VALIDATED: Final = -1


class StreamsPlan:
    """One member's heartbeat, as the group will see it once its records are committed."""

    configured: ConfiguredTopology

    def __init__(
        self,
        group: StreamsGroup,
        topics: GroupTopics,
        member_id: str | None,
        subscription: StreamsSubscription | None,
        given: Topology | None,
        standby_count: int,
    ) -> None:
        """`given` is the topology in the member's heartbeat. Raises InvalidRequestError if it is not the group's."""
        self.group = group
        self.epoch = group.group_epoch
        self.target: Mapping[str, TaskSet] = group.target
        #: What the member is told if its topology is an older one.
        self.staleness: Told | None = None
        self._topics = topics
        self._version = topics.version
        self._member_id = member_id
        self._configs = {STANDBY_COUNT: str(standby_count)}
        self._hash = group.metadata_hash
        self._subscriptions = {each.member_id: each.subscription for each in group.members.values()}
        self._subscription_records: list[CoordinatorRecord] = []
        if member_id is not None and subscription is not None:
            if self._subscriptions.get(member_id) != subscription:
                self._subscription_records.append(
                    streams_records.member_subscription(group.group_id, member_id, subscription)
                )
            self._subscriptions[member_id] = subscription
            self.staleness = _staleness(group, subscription)
        self.topology = _common_topology(group, given)

    @classmethod
    def of_all(cls, group: StreamsGroup, topics: GroupTopics) -> StreamsPlan:
        """A plan for a new target alone: for the present members, with the settings that the group has stored."""
        return cls(group, topics, None, None, None, int(group.assignment_configs.get(STANDBY_COUNT, 0)))

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
        written = list(self._subscription_records)
        if group.topology is None:
            written.append(streams_records.topology(group.group_id, self.topology))
        validated = self.topology.epoch if self.configured.is_ready else NOT_VALIDATED
        if (
            self._subscription_records
            or self._hash != group.metadata_hash
            or validated != group.validated_topology_epoch
            or self._configs != group.assignment_configs
        ):
            self.epoch += 1
            written.append(
                streams_records.group_metadata(group.group_id, self.epoch, self._hash, validated, self._configs)
            )
        return written

    async def new_target(self, now_ms: int) -> list[CoordinatorRecord]:
        """Assign all tasks again; nobody has any while the topology cannot run."""
        group = self.group
        members = [
            StreamsMemberSpec(member_id, subscription.process_id, group.target_of(member_id))
            for member_id, subscription in self._subscriptions.items()
        ]
        if self.configured.is_ready:
            specs = {
                name: SubtopologySpec(each.task_count, each.is_stateful)
                for name, each in self.configured.subtopologies.items()
            }
            assign = partial(sticky_assignor, members, specs, int(self._configs[STANDBY_COUNT]))
            is_large = len(members) + sum(spec.task_count for spec in specs.values()) > ON_THE_LOOP
            self.target = await trio.to_thread.run_sync(assign) if is_large else assign()
        else:
            self.target = {member.member_id: NO_TASKS for member in members}
        return [
            *(
                streams_records.target_assignment(group.group_id, member_id, tasks)
                for member_id, tasks in self.target.items()
                if group.target.get(member_id) != tasks
            ),
            streams_records.target_epoch(group.group_id, self.epoch, now_ms),
        ]

    def enter(self) -> None:
        """The records are committed: keep in the group what was found out about the topics."""
        self.group.configure(self.configured, self._version)


def _staleness(group: StreamsGroup, subscription: StreamsSubscription) -> Told | None:
    if group.topology is None or subscription.topology_epoch >= group.topology.epoch:
        return None
    return Told(
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
