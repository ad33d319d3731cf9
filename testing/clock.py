"""A clock that runs as usual and can be set forward: what would happen in an hour happens now."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio


class AdjustableClock(trio.abc.Clock):
    """The wall clock and Trio's clock of one broker, both ahead of the machine's by as much as they were advanced."""

    def __init__(self) -> None:
        self._ahead_seconds = 0.0
        self._date_ahead_seconds = 0.0

    def advance(self, seconds: float) -> None:
        """Set both forward. Must be called on the broker's loop; its sleeping tasks notice when they are next
        scheduled.
        """
        if seconds < 0:
            raise ValueError("time cannot go back")
        self._ahead_seconds += seconds
        self._date_ahead_seconds += seconds

    def correct_date(self) -> None:
        """Let the wall clock show the machine's date again, as if a wrong clock had been corrected."""
        self._date_ahead_seconds = 0.0

    def time_ms(self) -> int:
        """Milliseconds since the epoch (`ottla.storage.clock.Clock`)."""
        return time.time_ns() // 1_000_000 + round(self._date_ahead_seconds * 1000)

    def start_clock(self) -> None:
        return

    def current_time(self) -> float:
        return time.perf_counter() + self._ahead_seconds

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()


class BrokerClock:
    """The clock of a broker under test, as its test uses it."""

    def __init__(self, advance: Callable[[float], None], time_ms: Callable[[], int]) -> None:
        self._advance = advance
        self.time_ms = time_ms

    def advance(self, seconds: float) -> None:
        """Set the broker's time forward by this much, at once.

        Sessions, transactions and waits whose time is over end as if the time had passed. When this returns, retention
        and compaction have done what was due. Clients do not notice: their own clocks are not changed.
        """
        self._advance(seconds)
