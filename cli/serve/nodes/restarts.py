"""The schedule of restarts of a process that has died."""

from __future__ import annotations

from typing import Final

#: A process that has served for this long has recovered: its next death counts as a first one.
RECOVERED_SECONDS: Final = 30.0

_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 30.0


class Restarts:
    """The delays of one process: none after the first death, then twice as long each time."""

    def __init__(self) -> None:
        #: Deaths that followed soon after one another.
        self.deaths_in_a_row = 0
        self.total = 0

    def delay_seconds(self, lived_seconds: float) -> float:
        """Count a death; returns how long to wait before the next start."""
        if lived_seconds >= RECOVERED_SECONDS:
            self.deaths_in_a_row = 0
        self.deaths_in_a_row += 1
        self.total += 1
        if self.deaths_in_a_row == 1:
            return 0.0
        doublings = min(self.deaths_in_a_row - 2, 16)
        return min(_FIRST_DELAY_SECONDS * (1 << doublings), _LONGEST_DELAY_SECONDS)
