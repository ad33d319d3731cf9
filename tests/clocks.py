"""Clocks for tests on Trio, beside those of `trio.testing`."""

from __future__ import annotations

from math import inf
from time import monotonic, thread_time

from trio.abc import Clock


class OwnTimeClock(Clock):
    """Real time, less the time in which the event loop wanted a core and other processes had it.

    Time passes while the loop's thread computes and while the loop waits for a descriptor or a deadline. A session of
    a second therefore lasts as many heartbeats on a busy machine as on a quiet one. The clock starts at 0.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._seen = self._seen_own = 0.0
        self._may_wait = 0.0

    def start_clock(self) -> None:
        self._seen, self._seen_own = monotonic(), thread_time()

    def current_time(self) -> float:
        seen, seen_own = monotonic(), thread_time()
        own = seen_own - self._seen_own
        waited = min(max(seen - self._seen - own, 0.0), self._may_wait)
        self._now += own + waited
        self._may_wait -= waited
        self._seen, self._seen_own = seen, seen_own
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """How long the loop may wait. No more than this counts as waiting, however late the loop gets a core again."""
        self._may_wait = max(deadline - self.current_time(), 0.0)
        return self._may_wait if self._may_wait < inf else inf
