"""Faults that are planted in the engine are found: one that is not is a hole in the simulation.

Those that take many seeds are left to `make simulate`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.simulation.storage.planted_faults import FAULTS, PlantedFault, seeds_until_found


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The simulation looks at what the engine logs; pytest need not keep it."""
    logger = logging.getLogger("ottla")
    logger.propagate = False
    yield
    logger.propagate = True


# The seeds that found these last, of those that take several: where they still do, those before need not be tried.
LAST_FOUND_BY = {
    "a flush does not sync": 5,
    "a recovery believes what it reads": 6,
    "a truncation leaves the tail in memory": 59,
    "a descriptor is closed under its reader": 2,
    "a store is closed under the block that is being written": 7,
    "partitions are deleted under the block that is being written": 5,
    "compaction leaves the tail in memory as it was": 91,
    "a deleted topic's flush timer rings": 11,
    "a deleted topic is cleaned": 13,
}


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.is_slow], ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: PlantedFault) -> None:
    assert seeds_until_found(fault, first=LAST_FOUND_BY.get(fault.name, 0)) is not None
