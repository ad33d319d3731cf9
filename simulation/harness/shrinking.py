"""What a failure needs: as few of its parts as possible, and a timeline of what happens then."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from ottla.simulation.harness.outcome import Outcome

__all__ = ["shrunk", "timeline"]

_LAST: Final = 30
_MOST_RUNS: Final = 300
_TELLING: Final = re.compile(r" *[0-9.]+ (fault|node|nodes|nothing|the |it takes|they|all|lease|FINDING|[0-9]+ conn)")


def shrunk(failed: Outcome, again: Callable[[Collection[int]], Outcome]) -> Outcome:
    """The failure with fewer parts. `again` runs the seed with only the parts whose numbers it is given.

    First halves are left out, then quarters, in the end one part at a time. What it fails with may change. It ends
    after 300 runs, with what it has by then.
    """
    best = failed
    size = max(1, len(failed.parts) // 2)
    runs = 0
    while True:
        numbers = sorted(best.parts)
        for first in range(0, len(numbers), size):
            if runs == _MOST_RUNS:
                return best
            runs += 1
            tried = again(best.parts.keys() - set(numbers[first : first + size]))
            if tried.finding:
                best = tried
        if size == 1:
            return best
        size //= 2


def timeline(outcome: Outcome) -> list[str]:
    """The faults and what the nodes said, and everything that happened last."""
    trace = outcome.trace
    return [*(line for line in trace[:-_LAST] if _TELLING.match(line)), "  ...", *trace[-_LAST:]]
