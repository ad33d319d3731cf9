"""A few seeds of a whole cluster; `make simulate-cluster SEEDS=1000` runs many."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from ottla.simulation.cluster import simulation
from ottla.simulation.cluster.clients.client import Client
from ottla.simulation.cluster.faults.faults import Faults
from ottla.simulation.cluster.faults.resizing import Resizer
from ottla.simulation.cluster.simulation import ACKNOWLEDGED, READ_REMOTELY, SIMULATED_SECONDS, simulate
from ottla.simulation.cluster.world import World
from ottla.simulation.harness.outcome import Outcome


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The simulation looks at what nodes log; pytest need not keep it."""
    logger = logging.getLogger("ottla")
    logger.propagate = False
    yield
    logger.propagate = True


@pytest.mark.parametrize("seed", range(5))
def test_seeds(seed: int) -> None:
    outcome = lived(seed)
    outcome.check()
    assert outcome.counts[SIMULATED_SECONDS] > 10


def test_one_node_alone() -> None:
    outcome = simulate(14, nodes=1, seconds=5)
    outcome.check()
    assert outcome.counts[ACKNOWLEDGED]


def test_tiered_topics() -> None:
    """Everything is read in the end, and most of it is in the object store only."""
    outcome = simulate(6, seconds=3)
    outcome.check()
    assert outcome.counts[READ_REMOTELY]
    assert simulate(6, seconds=3).digest == outcome.digest


@pytest.mark.parametrize("seed", range(2))
def test_share_groups(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other clients: there is always somebody to whom records are given."""
    monkeypatch.setattr(simulation, "_KINDS", (simulation._share_group,))
    outcome = simulate(seed, seconds=4, faults=("kill", "pause", "cut", "store", "reset"))
    outcome.check()
    assert any("is given" in line for line in outcome.trace)


def test_nodes_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "_people", lambda world, partitions, unlucky: [Resizer(world, "resizer", unlucky)])
    outcome = simulate(3, seconds=3, faults=("kill", "pause", "cut"))
    outcome.check()
    assert any("has removed node" in line for line in outcome.trace)


def test_a_rolling_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    def people(world: World, *_: object) -> list[Client]:
        world.is_upgraded = True
        return []

    monkeypatch.setattr(simulation, "_people", people)
    outcome = simulate(5, seconds=3, faults=("roll",))
    outcome.check()
    assert sum("has stopped" in line for line in outcome.trace) > 6


def test_what_fails_while_a_process_stands_still_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(self: Faults) -> None:
        self._world.pauses.hold(1)
        raise ValueError("a fault of the simulation")

    monkeypatch.setattr(Faults, "run", run)
    assert "a fault of the simulation" in simulate(0, seconds=1).finding


def test_nothing_is_left_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its nodes, that is, in the process that has lived it: the second time all that is kept for good is there."""
    # pytest's handlers keep what nodes log, with the errors in it, and those have seen everything.
    monkeypatch.setattr(logging.getLogger("ottla"), "handlers", [])
    left = []
    for _ in range(2):
        simulate(2, seconds=2).check()
        left.append(resident())
    assert left[1] - left[0] == Counter()


def resident() -> Counter[str]:
    """How many objects of each of the product's types there are."""
    gc.collect()
    # Some types that come with others' libraries have an attribute of another kind in the place of their module's name.
    names = (f"{each.__module__}.{each.__name__}" for each in map(type, gc.get_objects()))
    return Counter(name for name in names if name.startswith("ottla."))


def test_a_seed_is_the_same_in_every_process() -> None:
    """Whatever the order of sets, and wherever objects lie in memory. This process has lived others before."""
    code = (
        "holes = [object() for _ in range(10000)][::3];"
        "from tests.simulation.cluster.test_cluster import lived; print(lived(0).digest, lived(3).digest)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    here = [lived(0).digest, lived(3).digest]
    assert other.stdout.split() == here
    assert here[0] != here[1]


@cache
def lived(seed: int) -> Outcome:
    """How a seed ended."""
    logging.getLogger("ottla").propagate = False
    return simulate(seed)
