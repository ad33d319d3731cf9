"""Some seeds of the storage engine; `make simulate SEEDS=5000` runs thousands."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from ottla.simulation.storage.simulation import simulate
from ottla.simulation.storage.soak import left_over
from tests.simulation.storage.finders import LAST_FOUND_BY


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The simulation looks at what the engine logs; pytest need not keep it."""
    logger = logging.getLogger("ottla")
    logger.propagate = False
    yield
    logger.propagate = True


# Among them are all that find a planted fault of `test_planted_faults`.
@pytest.mark.parametrize("seed", sorted({*range(40), *LAST_FOUND_BY.values()}))
def test_seeds(seed: int) -> None:
    digest(seed)


def test_a_seed_is_the_same_in_every_process() -> None:
    """Whatever the order of sets, and wherever objects lie in memory. This process has lived others before."""
    code = "from tests.simulation.storage.test_storage import digest; print(*map(digest, range(8)))"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    here = [digest(seed) for seed in range(8)]
    assert other.stdout.split() == here
    assert len(set(here)) == 8


def test_nothing_is_left_of_deleted_topics() -> None:
    """`make soak` makes and deletes 50,000."""
    assert not left_over(200)


@cache
def digest(seed: int) -> str:
    """The hash of a seed's trace."""
    logging.getLogger("ottla").propagate = False
    outcome = simulate(seed)
    outcome.check()
    return outcome.digest
