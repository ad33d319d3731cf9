"""How fast throttled replicas are copied (KIP-73; Kafka's ReplicationQuotaManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.server.quotas.rates import SimpleRate

if TYPE_CHECKING:
    from collections.abc import Callable


class ReplicationQuota:
    """The replication quota: the bytes of throttled replicas that a node may send to followers, or fetch as one.

    What goes to and from replicas in sync is counted with the rest, and never held back: a throttle must not take
    anybody out of an in-sync set. `limit` says the bytes a second that are allowed now.
    """

    def __init__(self, limit: Callable[[], int], windows: int, window_seconds: float) -> None:
        self._limit = limit
        self._rate = SimpleRate(windows, window_seconds)
        #: Of throttled replicas, since the start.
        self.total_bytes = 0

    def record(self, size_bytes: int) -> None:
        """Note how much was sent or fetched of throttled replicas."""
        self.total_bytes += size_bytes
        self._rate.record(size_bytes, trio.current_time())

    def throttle_seconds(self) -> float:
        """How long to copy nothing until the rate is down to the limit; 0 if it is not above it."""
        return self._rate.throttle_seconds(max(1, self._limit()), trio.current_time())
