"""The answer to heartbeats of consumer groups and share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.coordinator.group.assignment import Assignment


class HeartbeatResult(NamedTuple):
    """The answer. `assignment` is None when it has not changed since the last one."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None
