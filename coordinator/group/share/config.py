"""The settings of share groups."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ShareGroupConfig(NamedTuple):
    """`group.share.session.timeout.ms`, `.heartbeat.interval.ms`, `.max.size`, `.assignment.interval.ms` and
    `.initialize.retry.interval.ms`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 200
    assignment_interval_ms: int = 1_000
    initialize_retry_interval_ms: int = 30_000


class ShareGroupConfigs(Protocol):
    """The settings of each share group."""

    def of_share_group(self, group_id: str) -> ShareGroupConfig: ...
