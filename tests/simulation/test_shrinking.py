"""A failure is told with the faults that it needs."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from ottla.simulation.harness.outcome import Outcome
from ottla.simulation.harness.shrinking import shrunk, timeline


def outcome(faults: Collection[int], *, failing: bool, trace: Collection[str] = ()) -> Outcome:
    told = {number: f"fault {number}" for number in faults}
    return Outcome(1, "it fails" if failing else "", list(trace), "", told, {})


@pytest.mark.parametrize("needed", [{3}, {0, 12}, {5, 6, 7}, set(range(13)), set()])
def test_faults_that_are_not_needed_are_left_out(needed: set[int]) -> None:
    lived: list[set[int]] = []

    def again(only: Collection[int]) -> Outcome:
        lived.append(set(only))
        # Others may come later than the failure did: they are not asked for.
        return outcome(only, failing=needed <= set(only))

    least = shrunk(outcome(range(13), failing=True), again)
    assert set(least.parts) == needed
    assert all(only <= set(range(13)) for only in lived)
    assert len(lived) <= 40


def test_the_timeline_has_what_befell_and_all_of_the_end() -> None:
    trace = [
        "   1.0 fault 0: kill",
        "   1.1 p0 sends",
        "   1.2 node 1 is killed",
        *[f"   2.{n} p0 sends" for n in range(40)],
    ]
    lines = timeline(outcome({0}, failing=True, trace=trace))
    assert lines[:3] == ["   1.0 fault 0: kill", "   1.2 node 1 is killed", "  ..."]
    assert lines[3:] == trace[-30:]
