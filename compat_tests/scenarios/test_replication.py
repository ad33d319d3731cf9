"""Three nodes with three replicas under a real client: a few of the faults of `make replicated-kill-loop`."""

from __future__ import annotations

import pytest

from compat_tests.endurance.replicated_kill_loop import run


def test_nothing_acknowledged_is_lost_when_nodes_are_killed_and_stopped(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") != "ottla":
        pytest.skip("it kills nodes of its own")
    outcome = run(3, seed=0, kinds=("kill", "stop", "kill_all"))
    assert not outcome.wrong, outcome.summary
