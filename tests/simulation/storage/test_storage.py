"""A hundred seeds of the storage engine; `make simulate SEEDS=5000` runs thousands."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ottla.simulation.storage.simulation import Simulation
from ottla.simulation.storage.soak import left_over


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The simulation looks at what the engine logs; pytest need not keep it."""
    logger = logging.getLogger("ottla")
    logger.propagate = False
    yield
    logger.propagate = True


# As many as it takes to find every planted fault of `test_planted_faults`.
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_seeds(first: int) -> None:
    for seed in range(first, first + 20):
        Simulation(seed).run()


def test_a_seed_is_the_same_in_every_process() -> None:
    """Whatever the order of sets, and wherever objects lie in memory."""
    code = "import sys; from tests.simulation.storage.test_storage import digests; print(*digests(range(15)))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "1")
    }
    assert len(found) == 1
    assert len(set(next(iter(found)).split())) == 15


def test_nothing_is_left_of_deleted_topics() -> None:
    """`make soak` makes and deletes 50,000."""
    assert not left_over(200)


def digests(seeds: range) -> list[str]:
    """The hashes of these seeds' traces."""
    logging.getLogger("ottla").propagate = False
    return [Simulation(seed).run() for seed in seeds]
