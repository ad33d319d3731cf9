"""Faults that are planted in the engine are found: one that is not is a hole in the simulation.

Those that take many seeds are left to `make simulate`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.simulation.harness.planted import PlantedFault, seeds_until_found
from ottla.simulation.storage.planted_faults import FAULTS
from ottla.simulation.storage.simulation import simulate
from tests.simulation.storage.finders import LAST_FOUND_BY


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The simulation looks at what the engine logs; pytest need not keep it."""
    logger = logging.getLogger("ottla")
    logger.propagate = False
    yield
    logger.propagate = True


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.is_slow], ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: PlantedFault) -> None:
    assert seeds_until_found(simulate, fault, first=LAST_FOUND_BY.get(fault.name, 0), most=400) is not None
