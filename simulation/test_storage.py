"""A few hundred lives of the storage engine; `python -m simulation.storage --seeds 5000` runs thousands."""

from __future__ import annotations

import pytest

from simulation.storage import Simulation


@pytest.mark.parametrize("first", range(0, 300, 25))
def test_seeds(first: int) -> None:
    lives = [Simulation(seed) for seed in range(first, first + 25)]
    for life in lives:
        life.run()
    assert any(life.events for life in lives)


def test_a_seed_replays() -> None:
    first, second = Simulation(811), Simulation(811)
    first.run()
    second.run()
    assert first.trace == second.trace
