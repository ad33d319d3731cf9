"""Some of the seeds; `python -m ottla.simulation.coordinators --seeds 5000` lives thousands."""

from __future__ import annotations

import pytest

from ottla.simulation.coordinators.life import live
from ottla.simulation.coordinators.planted import FAULTS, without


# As many as it takes to find every planted fault below.
def test_seeds() -> None:
    worlds = [live(seed) for seed in range(20)]
    assert {world.seed: world.violations for world in worlds if world.violations} == {}
    assert all(
        sum(world.done[what] for world in worlds)
        for what in ("SimpleClient commit", "ConsumerMember beat", "StreamsMember beat")
    )


def test_a_seed_replays() -> None:
    first, second = live(23), live(23)
    assert len(first.trace) > 100
    assert first.trace == second.trace


# The seeds that found these last, of those that take many: where they still do, the ones before need not be tried.
LAST_FOUND_BY = {"lock": 5, "load": 9, "refusal": 16, "again": 9}


@pytest.mark.parametrize("what", FAULTS)
def test_it_finds_what_it_should(what: str) -> None:
    """README.md says how many seeds each takes."""
    likely = LAST_FOUND_BY.get(what, 0)
    with without(what):
        assert any(live(seed).violations for seed in [*range(likely, 100), *range(likely)])
