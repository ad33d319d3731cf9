"""Disks of which an operation fails: what is told of them, and what becomes of the nodes."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator

import pytest

from ottla.simulation.cluster.faults import Faults
from ottla.simulation.cluster.simulation import simulate
from ottla.storage.disk.faults import Fault, FaultKind


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The simulation looks at what nodes log; pytest need not keep it."""
    logger = logging.getLogger("ottla")
    logger.propagate = False
    yield
    logger.propagate = True


async def fail_every_write(self: Faults) -> None:
    failure = Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO, count=None)
    self._world.machines[1].fail_disk(failure)


def test_a_node_whose_disk_has_failed_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when nothing else is wrong any more: until then others lead, and records are acknowledged."""
    monkeypatch.setattr(Faults, "run", fail_every_write)
    outcome = simulate(3, seconds=2)
    outcome.check()
    assert outcome.acknowledged
    assert sum("is offline, its last write failed" in line for line in outcome.trace)
    assert sum(line.endswith("node 1 starts") for line in outcome.trace) == 2
