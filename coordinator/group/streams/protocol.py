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
- A static member that comes back takes its place, and its tasks, without a rebalance (`static_members.py`).
- A member that knows of it is asked for a description of the topology until there is one (KIP-1331).

As in Kafka 4.4 nobody is given warm-up tasks yet, and a group's topology never changes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from ottla.coordinator.errors import CoordinatorError, InvalidRequestError, TopologyDescriptionError
from ottla.coordinator.group.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.coordinator.group.modern.protocol import GroupServices, ModernProtocol
from ottla.coordinator.group.modern.static_members import LEAVE_STATIC_EPOCH
from ottla.coordinator.group.streams import records
from ottla.coordinator.group.streams.assignor import NO_TASKS
from ottla.coordinator.group.streams.description import MAX_SIZE_BYTES
from ottla.coordinator.group.streams.endpoints import endpoints
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.heartbeat import (
    StreamsGroupConfig,
    StreamsGroupConfigs,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
)
from ottla.coordinator.group.streams.member import (
    StreamsCurrent,
    StreamsMember,
    StreamsMemberState,
    StreamsSubscription,
)
from ottla.coordinator.group.streams.owners import each_task
from ottla.coordinator.group.streams.plan import StreamsPlan
from ottla.coordinator.group.streams.reconciliation import next_tasks
from ottla.coordinator.group.streams.task_offsets import NOTHING_REPORTED
from ottla.coordinator.group.streams.topology import HeartbeatStatus, StreamsStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.coordinator.group.streams.assignor import TaskSet

logger = logging.getLogger(__name__)

_ENDPOINT_EPOCHS: Final = 0x3FFF_FFFF
"""Endpoint epochs with which a loaded group may begin: another one in each millisecond of twelve days."""


class StreamsProtocol(ModernProtocol[StreamsGroup, StreamsMember, StreamsHeartbeat, StreamsHeartbeatResult]):
    """Runs all streams groups of one broker. The caller holds the group's lock."""

    group_class = StreamsGroup

    def __init__(self, services: GroupServices, *, configs: StreamsGroupConfigs) -> None:
        super().__init__(services)
        self._configs = configs

    async def heartbeat(self, group: StreamsGroup, beat: StreamsHeartbeat) -> StreamsHeartbeatResult:
        """Take one step with a member. Raises CoordinatorError, and then nothing has changed."""
        if beat.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return await self._leave(group, beat)
        config = self._configs.of_streams_group(group.group_id)
        is_new_group = not group.members
        former = self._find_member(group, beat, config)
        plan = StreamsPlan(group, self._topics, beat.topology, config.of_assignment())
        await plan.look_at_topics()
        _check_owned(plan, beat.owned)
        step = _Step(beat, config, former, is_new_group=group.topology is None)
        plan.take_in(beat.member_id, former, step.subscription, step.offsets, as_static=beat.instance_id is not None)
        written = plan.changes()
        statuses = [plan.staleness] if plan.staleness is not None else []
        target, target_epoch = plan.target.get(beat.member_id, NO_TASKS), group.target_epoch
        delay_ms = config.initial_rebalance_delay_ms if is_new_group else 0
        if delay_ms or group.delayed_until > trio.current_time():
            statuses.append(_delayed("initial rebalance delay"))
            target = NO_TASKS
        elif plan.epoch > group.target_epoch:
            if group.may_assign(self._clock.time_ms(), config.assignment_interval_ms):
                written += await plan.new_target(self._clock.time_ms())
                target, target_epoch = plan.target[beat.member_id], plan.epoch
            else:
                statuses.append(_delayed("assignment interval"))
        current = step.next(target, target_epoch, group)
        if step.takes_place or current != step.start:
            written.append(records.current_assignment(group.group_id, beat.member_id, current))
        shutdown_requester = group.shutdown_requester
        await self.commit(group, written)
        plan.enter()
        if former is not None and former.removed:
            self.end_sessions([former])
        elif step.takes_place and len(group.members) == 1:
            # Kafka removes the member, with which the group is empty for a moment, and adds it again.
            group.withdraw_shutdown()
        if delay_ms and group.delayed_until <= trio.current_time():
            group.delay(trio.current_time() + delay_ms / 1000)
            self._nursery.start_soon(self._assign_later, group, delay_ms / 1000)
        member = group.members[beat.member_id]
        member.offsets = step.offsets
        self._touch(group, member, has_moved=current != step.start)
        if beat.shutdown_application:
            self._request_shutdown(group, beat.member_id)
        return self._result(group, member, step, plan, statuses, shutdown_requester or group.shutdown_requester)

    def _result(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        step: _Step,
        plan: StreamsPlan,
        statuses: list[HeartbeatStatus],
        shutdown_requester: str | None,
    ) -> StreamsHeartbeatResult:
        beat, config = step.beat, step.config
        assigned, endpoint = member.current.assigned, member.subscription.user_endpoint
        has_moved = assigned != step.start.assigned
        # As in Kafka, the first heartbeat of a new group does not raise the endpoint epoch; the next one does.
        if (endpoint != step.former_endpoint or (has_moved and endpoint is not None)) and not step.is_new_group:
            group.endpoints_changed()
        is_news = group.endpoint_epoch != beat.endpoint_epoch or (step.is_new_group and endpoint is not None)
        statuses += _last_statuses(member, plan, config, beat, shutdown_requester)
        return StreamsHeartbeatResult(
            member.member_id,
            member.current.epoch,
            config.heartbeat_interval_ms,
            statuses,
            assigned.without_epochs() if beat.member_epoch == JOIN_EPOCH or has_moved else None,
            group.endpoint_epoch,
            endpoints(group, self._topics, last=member) if is_news else None,
            plan.configured.to_create,
            config.task_offset_interval_ms,
            config.acceptable_recovery_lag,
            beat.knows_4_4 and plan.staleness is None and group.asks_for_description(trio.current_time()),
        )

    def _find_member(
        self, group: StreamsGroup, beat: StreamsHeartbeat, config: StreamsGroupConfig
    ) -> StreamsMember | None:
        """The member that a heartbeat speaks for; None for a new one."""
        if beat.member_epoch == JOIN_EPOCH:
            return group.find_joining(beat.member_id, beat.instance_id, config.max_size)
        member = group.find_static(beat.member_id, beat.instance_id)
        member.check_epoch(beat.member_epoch, beat.owned)
        return member

    # The description of the topology

    async def describe_topology(
        self, group: StreamsGroup, member_id: str, topology_epoch: int, description: bytes | None
    ) -> None:
        """Keep what a member says about the topology; None is a description that is too large.

        Raises CoordinatorError: TopologyDescriptionError if it is too large, and then nobody is asked for it again.
        """
        group.find_member(member_id)
        current = -1 if group.topology is None else group.topology.epoch
        if group.topology is None or topology_epoch != current:
            raise InvalidRequestError(
                f"Topology epoch {topology_epoch} does not match the group's current topology epoch {current}."
            )
        if description is None:
            metadata = group.metadata()._replace(failed_description_epoch=current)
            await self.commit(group, [records.group_metadata(group.group_id, metadata)])
            raise TopologyDescriptionError(f"A description of more than {MAX_SIZE_BYTES} bytes is not kept.")
        if description != group.description:
            await self.commit(group, [records.topology(group.group_id, group.topology, description)])

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
        member = group.find_static(beat.member_id, beat.instance_id)
        if beat.shutdown_application:
            self._request_shutdown(group, beat.member_id)
        if beat.member_epoch == LEAVE_STATIC_EPOCH:
            away = records.current_assignment(group.group_id, member.member_id, member.current.away())
            await self.commit(group, [away])
            # What it was to revoke is free: only its session counts.
            member.expect_nothing()
        else:
            await self._remove(group, member)
        return StreamsHeartbeatResult(beat.member_id, beat.member_epoch)

    async def _remove(self, group: StreamsGroup, member: StreamsMember) -> None:
        """Remove a member; the others get its tasks with their next heartbeats."""
        epoch = group.group_epoch + 1
        written = records.RECORDS.member_tombstones(group.group_id, member.member_id)
        written.append(records.group_metadata(group.group_id, group.metadata()._replace(epoch=epoch)))
        if len(group.members) == 1:
            written.append(records.target_epoch(group.group_id, epoch, 0))
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
            member.expect_nothing()

    def _session_timeout_ms(self, group: StreamsGroup, member: StreamsMember) -> int:
        return self._configs.of_streams_group(group.group_id).session_timeout_ms

    def resume(self, group: StreamsGroup) -> None:
        super().resume(group)
        group.count_endpoints_from(self._clock.time_ms() & _ENDPOINT_EPOCHS)
        for member in group.members.values():
            self._expect(member)


def _delayed(by: str) -> HeartbeatStatus:
    return HeartbeatStatus(StreamsStatus.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {by}.")


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


class _Step:
    """One heartbeat of a member, and the member as it was before: its record is about to change."""

    def __init__(
        self, beat: StreamsHeartbeat, config: StreamsGroupConfig, former: StreamsMember | None, *, is_new_group: bool
    ) -> None:
        """Raises InvalidRequestError for offsets that contradict themselves."""
        self.beat, self.config = beat, config
        self.is_new_group = is_new_group
        self.subscription = _subscription(former, beat)
        self.former_endpoint = None if former is None else former.subscription.user_endpoint
        #: Whether it takes the place of a static member that went away.
        self.takes_place = former is not None and former.has_left
        before = StreamsCurrent() if former is None else former.current
        self.start = before.back() if self.takes_place else before
        offsets = NOTHING_REPORTED if former is None or self.takes_place else former.offsets
        reported = offsets.reported(beat.task_offsets, beat.task_end_offsets)
        is_back = self.takes_place and former is not None and former.member_id == beat.member_id
        #: As in Kafka, the first member of a group reports none, as it has no tasks yet; nor does one that returns.
        self.offsets = NOTHING_REPORTED if is_new_group or is_back else reported

    def next(self, target: TaskSet, target_epoch: int, group: StreamsGroup) -> StreamsCurrent:
        """The member's current assignment after the heartbeat."""
        return next_tasks(
            self.start,
            process_id=self.subscription.process_id,
            target=target,
            target_epoch=target_epoch,
            owned=self.beat.owned,
            owners=group.owners,
        )


def _last_statuses(
    member: StreamsMember,
    plan: StreamsPlan,
    config: StreamsGroupConfig,
    beat: StreamsHeartbeat,
    shutdown_requester: str | None,
) -> Sequence[HeartbeatStatus]:
    """The statuses that come last."""
    statuses = [] if plan.configured.problem is None else [plan.configured.problem]
    if shutdown_requester is not None:
        statuses.append(
            HeartbeatStatus(
                StreamsStatus.SHUTDOWN_APPLICATION,
                f"Streams group member {shutdown_requester} encountered a fatal error and requested a "
                "shutdown for the entire application.",
            )
        )
    missing = [tag for tag in config.rack_tags if tag not in member.subscription.client_tags]
    if missing and beat.knows_4_4:
        statuses.append(
            HeartbeatStatus(
                StreamsStatus.MISSING_CLIENT_TAGS,
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure "
                "them via 'client.tag.<tagKey>' in your Streams config.",
            )
        )
    return statuses


def _subscription(former: StreamsMember | None, beat: StreamsHeartbeat) -> StreamsSubscription:
    """The member's subscription after a heartbeat: omitted fields stay as they were, except the endpoint at a join."""
    before = StreamsSubscription() if former is None else former.subscription
    timeout_ms = beat.rebalance_timeout_ms
    former_endpoint = None if beat.member_epoch == JOIN_EPOCH else before.user_endpoint
    return StreamsSubscription(
        rack_id=before.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        topology_epoch=before.topology_epoch if beat.topology is None else beat.topology.epoch,
        process_id=before.process_id if beat.process_id is None else beat.process_id,
        user_endpoint=beat.user_endpoint or former_endpoint,
        client_tags=before.client_tags if beat.client_tags is None else beat.client_tags,
        instance_id=before.instance_id if beat.instance_id is None else beat.instance_id,
    )
