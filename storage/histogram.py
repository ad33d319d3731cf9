"""How long things took, counted in preallocated classes: one binary search and two additions for each observation."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

__all__ = ["BOUNDS_SECONDS", "Histogram"]

BOUNDS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper (inclusive) ends of the classes; one more class has what took longer."""
# Most are in the first class, and a search costs.
_FIRST: Final = BOUNDS_SECONDS[0]


class Histogram:
    """Durations by class, and their sum. One thread writes; readers see values that are almost current."""

    __slots__ = ("counts", "sum_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[0 if seconds <= _FIRST else bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.sum_seconds += seconds

    def observe_all(self, durations: Sequence[float]) -> None:
        """Count several in the time of about one; at least one."""
        self.sum_seconds += sum(durations)
        in_order = sorted(durations)
        first = 0
        for number, bound in enumerate(BOUNDS_SECONDS):
            end = bisect_right(in_order, bound, first)
            self.counts[number] += end - first
            first = end
            if first == len(in_order):
                return
        self.counts[-1] += len(in_order) - first

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self.counts)
