"""Streams groups (KIP-1071): one heartbeat that joins, leaves, and hands out tasks.

What it promises (Kafka's GroupMetadataManager, streamsGroupHeartbeat):

- All that a heartbeat changes is committed as one batch before it is answered, and the group follows the log. The
  operations of one group come one after the other.
- A task has one active member at a time: it is passed on only when its former member has said that it revoked it, has
  left, or was fenced because its session or its rebalance timeout ended.
- Tasks are assigned once the topology's source topics and internal topics exist. The caller creates the internal ones:
  an answer names those that are missing.
- A new group waits for more members before its first assignment (`streams.initial.rebalance.delay.ms`).
- A heartbeat whose answer was lost may be repeated with the previous epoch.

As in Kafka 4.3 there are no static members and no warm-up tasks yet, and a group's topology never changes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.server.coordinator.errors import (
    CoordinatorError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
)
from ottla.server.coordinator.group import streams_records
from ottla.server.coordinator.group.modern import ModernProtocol, Surroundings
from ottla.server.coordinator.group.modern_group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.server.coordinator.group.streams_assignor import NO_TASKS
from ottla.server.coordinator.group.streams_endpoints import EndpointTasks, endpoints
from ottla.server.coordinator.group.streams_group import (
    Endpoint,
    StreamsCurrent,
    StreamsGroup,
    StreamsMember,
    StreamsMemberState,
    StreamsSubscription,
    each_task,
)
from ottla.server.coordinator.group.streams_plan import StreamsPlan
from ottla.server.coordinator.group.streams_reconciliation import next_tasks
from ottla.server.coordinator.group.streams_topology import StreamsStatus, Told

if TYPE_CHECKING:
    from ottla.server.coordinator.group.streams_assignor import TaskSet
    from ottla.server.coordinator.group.streams_topology import InternalTopic, Topology

logger = logging.getLogger(__name__)

_ENDPOINT_EPOCHS: Final = 0x3FFF_FFFF
"""Where a group that was loaded may begin to count: each millisecond of twelve days somewhere else."""


class StreamsHeartbeat(NamedTuple):
    """A StreamsGroupHeartbeat that was found valid. None means unchanged."""

    member_id: str
    member_epoch: int
    endpoint_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int | None
    topology: Topology | None
    owned: TaskSet | None
    process_id: str | None
    user_endpoint: Endpoint | None
    client_tags: Mapping[str, str] | None
    shutdown_application: bool = False


class StreamsHeartbeatResult(NamedTuple):
    """The answer. `tasks` is None when they have not changed, `endpoints` when the member knows them."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    statuses: Sequence[Told] = ()
    tasks: TaskSet | None = None
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointTasks] | None = None
    to_create: Mapping[str, InternalTopic] = {}


class StreamsGroupConfig(NamedTuple):
    """`group.streams.session.timeout.ms`, `.heartbeat.interval.ms`, `.max.size`, `.assignment.interval.ms`,
    `.initial.rebalance.delay.ms` and `.num.standby.replicas`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    standby_count: int = 0


class StreamsProtocol(ModernProtocol[StreamsGroup, StreamsMember]):
    """Runs all streams groups of one broker. The caller holds the group's lock."""

    def __init__(self, surroundings: Surroundings, *, config: Callable[[str], StreamsGroupConfig]) -> None:
        """`config` gives a group's settings."""
        super().__init__(surroundings)
        self._config = config

    async def heartbeat(self, group: StreamsGroup, beat: StreamsHeartbeat) -> StreamsHeartbeatResult:
        """Take one step with a member. Raises CoordinatorError, and then nothing has changed."""
        if beat.member_epoch == LEAVE_EPOCH:
            return await self._leave(group, beat)
        config = self._config(group.group_id)
        is_new_group = not group.members
        former = self._find_member(group, beat, config)
        subscription = _subscription(former, beat)
        plan = StreamsPlan(group, self._topics, beat.member_id, subscription, beat.topology, config.standby_count)
        await plan.look_at_topics()
        _check_owned(plan, beat.owned)
        written = plan.changes()
        told = [plan.staleness] if plan.staleness is not None else []
        target, target_epoch = group.target_of(beat.member_id), group.target_epoch
        delay_ms = config.initial_rebalance_delay_ms if is_new_group else 0
        if delay_ms or group.delayed_until > trio.current_time():
            told.append(_delayed("initial rebalance delay"))
            target = NO_TASKS
        elif plan.epoch > group.target_epoch:
            if group.may_assign(self._clock.time_ms(), config.assignment_interval_ms):
                written += await plan.new_target(self._clock.time_ms())
                target, target_epoch = plan.target[beat.member_id], plan.epoch
            else:
                told.append(_delayed("assignment interval"))
        before = StreamsCurrent() if former is None else former.current
        current = next_tasks(
            before,
            process_id=subscription.process_id,
            target=target,
            target_epoch=target_epoch,
            owned=beat.owned,
            owners=group.owners,
        )
        if current != before:
            written.append(streams_records.current_assignment(group.group_id, beat.member_id, current))
        is_founded = group.topology is None
        await self.commit(group, written)
        plan.enter()
        if delay_ms and group.delayed_until <= trio.current_time():
            group.delay(trio.current_time() + delay_ms / 1000)
            self._nursery.start_soon(self._assign_later, group, delay_ms / 1000)
        member = group.members[beat.member_id]
        self._touch(group, member, has_moved=current != before)
        if beat.shutdown_application:
            self._request_shutdown(group, beat.member_id)
        return self._result(group, member, beat, plan, told, before, config, is_founded=is_founded)

    def _result(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        beat: StreamsHeartbeat,
        plan: StreamsPlan,
        told: list[Told],
        before: StreamsCurrent,
        config: StreamsGroupConfig,
        *,
        is_founded: bool,
    ) -> StreamsHeartbeatResult:
        assigned = member.current.assigned
        is_changed = beat.member_epoch == JOIN_EPOCH or assigned != before.assigned
        # While a group is being founded nobody knows its endpoints yet: Kafka begins to count with the next heartbeat.
        if is_changed and member.subscription.user_endpoint is not None and not is_founded:
            group.endpoints_changed()
        is_news = group.endpoint_epoch != beat.endpoint_epoch or (
            is_founded and member.subscription.user_endpoint is not None
        )
        problem = plan.configured.problem
        if problem is not None:
            told.append(problem)
        if group.shutdown_requester is not None:
            told.append(
                Told(
                    StreamsStatus.SHUTDOWN_APPLICATION,
                    f"Streams group member {group.shutdown_requester} encountered a fatal error and requested a "
                    "shutdown for the entire application.",
                )
            )
        return StreamsHeartbeatResult(
            member.member_id,
            member.current.epoch,
            config.heartbeat_interval_ms,
            told,
            assigned.without_epochs() if is_changed else None,
            group.endpoint_epoch,
            endpoints(group, self._topics, last=member) if is_news else None,
            plan.configured.to_create,
        )

    def _find_member(
        self, group: StreamsGroup, beat: StreamsHeartbeat, config: StreamsGroupConfig
    ) -> StreamsMember | None:
        """The member that a heartbeat speaks for; None for one that joins."""
        if beat.member_epoch != JOIN_EPOCH:
            member = group.find_member(beat.member_id)
            member.check_epoch(beat.member_epoch, beat.owned)
            return member
        if len(group.members) >= config.max_size:
            raise GroupMaxSizeReachedError(
                f"The streams group has reached its maximum capacity of {config.max_size} members."
            )
        return group.members.get(beat.member_id)

    # The first assignment of a new group

    async def _assign_later(self, group: StreamsGroup, delay_seconds: float) -> None:
        """Compute the first target when the delay is over; members get it with their next heartbeats."""
        await trio.sleep(delay_seconds)
        async with self._locks.exclusively(group.group_id):
            if group.removed or not group.members or group.group_epoch <= group.target_epoch or group.topology is None:
                return
            plan = StreamsPlan.of_all(group, self._topics)
            try:
                await plan.look_at_topics()
                await self.commit(group, await plan.new_target(self._clock.time_ms()))
            except CoordinatorError as error:
                logger.warning("group %s: no tasks are assigned for now: %s", group.group_id, error)

    # Leaving

    async def _leave(self, group: StreamsGroup, beat: StreamsHeartbeat) -> StreamsHeartbeatResult:
        member = group.find_member(beat.member_id)
        if beat.shutdown_application:
            self._request_shutdown(group, beat.member_id)
        await self._remove(group, member)
        return StreamsHeartbeatResult(beat.member_id, beat.member_epoch)

    async def _remove(self, group: StreamsGroup, member: StreamsMember) -> None:
        """Remove a member; the others get its tasks with their next heartbeats."""
        written = streams_records.member_tombstones(group.group_id, member.member_id)
        written.append(
            streams_records.group_metadata(
                group.group_id,
                group.group_epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_configs,
            )
        )
        await self.commit(group, written)
        self._purgatory.signal(member)

    def _request_shutdown(self, group: StreamsGroup, member_id: str) -> None:
        if group.request_shutdown(member_id):
            keys = {"group": group.group_id, "member": member_id}
            logger.info("group %s: %s asks the whole application to shut down", group.group_id, member_id, extra=keys)

    # Sessions

    def _touch(self, group: StreamsGroup, member: StreamsMember, *, has_moved: bool) -> None:
        """Prolong the session. What the member has to revoke, it must revoke within its rebalance timeout."""
        self.prolong(group, member)
        if has_moved:
            self._expect(member)

    def _expect(self, member: StreamsMember) -> None:
        if member.current.state is StreamsMemberState.UNREVOKED_TASKS:
            self._set_rebalance_deadline(member, member.subscription.rebalance_timeout_ms)
        else:
            member.rebalance_deadline = math.inf

    def _session_timeout_ms(self, group: StreamsGroup, member: StreamsMember) -> int:
        return self._config(group.group_id).session_timeout_ms

    def resume(self, group: StreamsGroup) -> None:
        super().resume(group)
        group.count_endpoints_from(self._clock.time_ms() & _ENDPOINT_EPOCHS)
        for member in group.members.values():
            self._expect(member)


def _delayed(by: str) -> Told:
    return Told(StreamsStatus.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {by}.")


def _check_owned(plan: StreamsPlan, owned: TaskSet | None) -> None:
    """Refuse tasks that do not exist. Raises InvalidRequestError."""
    if owned is None or not plan.configured.is_ready:
        return
    for role in owned:
        for name, index in each_task(role):
            subtopology = plan.configured.subtopologies.get(name)
            if subtopology is None:
                raise InvalidRequestError(f"Subtopology {name} does not exist in the topology.")
            if not 0 <= index < subtopology.task_count:
                raise InvalidRequestError(
                    f"Task {index} for subtopology {name} is invalid. Number of tasks for this subtopology: "
                    f"{subtopology.task_count}"
                )


def _subscription(former: StreamsMember | None, beat: StreamsHeartbeat) -> StreamsSubscription:
    """What the member says about itself now: what it leaves out stays as it was."""
    before = StreamsSubscription() if former is None else former.subscription
    timeout_ms = beat.rebalance_timeout_ms
    return StreamsSubscription(
        rack_id=before.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        topology_epoch=before.topology_epoch if beat.topology is None else beat.topology.epoch,
        process_id=before.process_id if beat.process_id is None else beat.process_id,
        user_endpoint=beat.user_endpoint or before.user_endpoint,
        client_tags=before.client_tags if beat.client_tags is None else beat.client_tags,
    )
