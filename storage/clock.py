"""The wall clock behind an interface, so that a simulation can own time.

Time outs and intervals use Trio's own clock (`trio.current_time`, `trio.testing.MockClock`); this one answers
only "what is the date", for record timestamps and retention.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock. It may jump backwards, as the machine's does; callers must cope with that."""

    def time_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z."""
        ...


class SystemClock:
    """The machine's wall clock."""

    __slots__ = ()

    def time_ms(self) -> int:
        """Milliseconds since the epoch, according to the kernel."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until a test moves it."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def time_ms(self) -> int:
        """The time last set."""
        return self._now_ms

    def advance(self, duration_ms: int) -> None:
        """Move by a duration; a negative one is a clock set back."""
        self._now_ms += duration_ms

    def set(self, now_ms: int) -> None:
        """Move to a date."""
        self._now_ms = now_ms
