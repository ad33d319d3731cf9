"""The input and the result of one step of the streams protocol (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.coordinator.group.streams.assignor import Task, TaskSet
    from ottla.coordinator.group.streams.endpoints import EndpointTasks
    from ottla.coordinator.group.streams.member import Endpoint
    from ottla.coordinator.group.streams.topology import HeartbeatStatus, InternalTopic, Topology

STANDBY_COUNT: Final = "num.standby.replicas"
RACK_TAGS: Final = "rack.aware.assignment.tags"


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
    instance_id: str | None = None
    task_offsets: Sequence[tuple[Task, int]] | None = None
    task_end_offsets: Sequence[tuple[Task, int]] | None = None
    #: Before version 1 a member knows neither missing client tags nor that its topology may be asked for.
    knows_4_4: bool = False


class StreamsHeartbeatResult(NamedTuple):
    """The answer. `tasks` is None when they have not changed, `endpoints` when the member knows them."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    statuses: Sequence[HeartbeatStatus] = ()
    tasks: TaskSet | None = None
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointTasks] | None = None
    to_create: Mapping[str, InternalTopic] = {}
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    #: Whether the member is to send a description of the topology.
    asks_for_description: bool = False


class StreamsGroupConfig(NamedTuple):
    """`group.streams.session.timeout.ms`, `.heartbeat.interval.ms`, `.max.size`, `.assignment.interval.ms`,
    `.initial.rebalance.delay.ms`, `.num.standby.replicas`, `.task.offset.interval.ms`, `.acceptable.recovery.lag` and
    `.rack.aware.assignment.tags`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    standby_count: int = 0
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = 10_000
    rack_tags: tuple[str, ...] = ()

    def of_assignment(self) -> dict[str, str]:
        """The settings that an assignment depends on, as the group's record has them: a change calls for a new one."""
        configs = {STANDBY_COUNT: str(self.standby_count)}
        if self.rack_tags:
            configs[RACK_TAGS] = ",".join(self.rack_tags)
        return configs


class StreamsGroupConfigs(Protocol):
    """The settings of each streams group."""

    def of_streams_group(self, group_id: str) -> StreamsGroupConfig: ...
