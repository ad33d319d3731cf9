"""What a topic's settings mean for its partitions on this node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.replica.throttles import NO_THROTTLES, Throttled

if TYPE_CHECKING:
    from ottla.storage.config import LogConfig


class TopicRules(NamedTuple):
    """How its logs are kept, how many replicas must be in sync (`min.insync.replicas`), and which are throttled."""

    log: LogConfig
    min_insync_replicas: int = 1
    throttled: Throttled = NO_THROTTLES
