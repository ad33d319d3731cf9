"""Disks of which an operation fails: what is told of them, and what becomes of the nodes."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator

import pytest

from ottla.simulation.cluster.checks.in_sync import view
from ottla.simulation.cluster.faults.faults import Faults
from ottla.simulation.cluster.simulation import EVENTS, simulate
from ottla.storage.disk.faults import Fault, FaultKind


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The simulation looks at what nodes log; pytest need not keep it."""
    logger = logging.getLogger("ottla")
    logger.propagate = False
    yield
    logger.propagate = True


async def fail_every_write(self: Faults) -> None:
    """Of the node that leads what is written all the time."""
    failure = Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO, count=None)
    async with view(self._world.store) as metadata:
        leader = metadata.image.topics[EVENTS].partitions[0].leader
        self._world.machines[leader].fail_disk(failure)
        while metadata.image.topics[EVENTS].partitions[0].leader == leader:
            await metadata.next()
    self._world.note(f"node {leader} leads no more")


def test_a_node_whose_disk_has_failed_hands_over_and_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when nothing else is wrong any more: until then another node leads."""
    monkeypatch.setattr(Faults, "run", fail_every_write)
    outcome = simulate(3, seconds=2)
    outcome.check()
    lines = [line.split(maxsplit=1)[1] for line in outcome.trace]
    assert any("is offline, its disk has failed" in line for line in lines)
    node, handed_over = next((line[: len("node 1")], at) for at, line in enumerate(lines) if "leads no more" in line)
    healed = lines.index("all is well again")
    assert handed_over < healed
    assert [at > healed for at, line in enumerate(lines) if line == f"{node} starts"] == [False, True]
