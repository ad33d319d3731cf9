"""Faults that are planted in the product can be planted, and what watches in-sync sets sees those that spoil them.

How many seeds all the others take is counted by `ottla simulate --planted`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest

from ottla.simulation.cluster.planted_faults import FAULTS
from ottla.simulation.cluster.simulation import simulate
from ottla.simulation.harness.planted import PlantedFault, planted, seeds_until_found
from ottla.storage.node_dir import NodeDir

_MOST_SEEDS = 40


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The simulation looks at what nodes log; pytest need not keep it."""
    logger = logging.getLogger("ottla")
    logger.propagate = False
    yield
    logger.propagate = True


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_planted_and_taken_out(fault: PlantedFault) -> None:
    sound = [owner.__dict__[attribute] for owner, attribute, _ in fault.changes]
    with planted(fault):
        assert [owner.__dict__[attribute] for owner, attribute, _ in fault.changes] != sound
    assert [owner.__dict__[attribute] for owner, attribute, _ in fault.changes] == sound


# With the seed that found each last: where it still does, those before need not be tried.
@pytest.mark.parametrize(("name", "first"), [("joins without having caught up", 0), ("not in sync is elected", 36)])
def test_who_may_lead_and_lacks_what_is_committed_is_seen(name: str, first: int) -> None:
    fault = next(fault for fault in FAULTS if name in fault.name)._replace(finding="may lead it")
    assert seeds_until_found(simulate, fault, first=first, most=_MOST_SEEDS) is not None


def test_what_is_lost_at_the_border_of_disk_and_object_store_is_seen() -> None:
    fault = next(fault for fault in FAULTS if "not copied goes" in fault.name)._replace(finding="OFFSET_OUT_OF_RANGE")
    assert seeds_until_found(partial(simulate, seconds=4), fault, first=6, most=7) is not None


def test_a_fault_that_fails_itself_is_not_taken_for_found() -> None:
    def out_of_date(self: NodeDir) -> None:
        self.open_as_before()  # type: ignore[attr-defined]

    with pytest.raises(ExceptionGroup) as raised:
        seeds_until_found(simulate, PlantedFault("any", ((NodeDir, "open", out_of_date),)), most=1)
    assert raised.group_contains(AttributeError, match="open_as_before")
