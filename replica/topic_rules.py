"""What a topic's settings mean for its partitions on this node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.replica.throttles import NO_THROTTLES, Throttled

if TYPE_CHECKING:
    from ottla.replica.tiered.rules import RemoteRules
    from ottla.storage.config import LogConfig


class TopicRules(NamedTuple):
    """How its logs are kept, how many replicas must be in sync (`min.insync.replicas`), which are throttled, and what
    of it is in the object store, None if nothing is.
    """

    log: LogConfig
    min_insync_replicas: int = 1
    throttled: Throttled = NO_THROTTLES
    remote: RemoteRules | None = None
