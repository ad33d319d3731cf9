"""The metadata of a cluster is lost, or put back older: no acknowledged record goes with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.metadata import from_data
from ottla.replica.kept_logs import KeptLogs
from ottla.simulation.cluster import disasters
from ottla.simulation.cluster.disasters import Disaster, live_through
from ottla.simulation.harness.outcome import SimulationError

_SEEDS_UNTIL_FOUND = 40
"""The first of these finds the planted fault, mostly one of the first ten."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("ottla")
    logger.propagate = False
    yield
    logger.propagate = True


@pytest.mark.parametrize("seed", range(3))
def test_metadata_is_restored_from_the_data(seed: int) -> None:
    ended = live_through(seed, Disaster.LOST)
    assert ended.acknowledged


def test_topics_without_records_do_not_come_back() -> None:
    assert not live_through(700181, Disaster.LOST).acknowledged


# With 700200 a node that led a partition, and wrote nothing in that epoch, is the only one to know that it was moved.
@pytest.mark.parametrize("seed", [3, 4, 6, 13, 700200])
def test_older_metadata_is_put_back(seed: int) -> None:
    ended = live_through(seed, Disaster.OLDER)
    assert ended.acknowledged


def test_a_restore_that_takes_every_replica_for_in_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that lacks records leads then, and the others are cut.

    Only if one lacks records when all end: one seed in four has that. Which ones changes with all that changes the
    course of a seed.
    """
    monkeypatch.setattr(from_data, "_best", lambda name, logs, prefer: list(logs))
    # First the seed that has found it last.
    found = next(filter(None, map(_finding, (3, *range(_SEEDS_UNTIL_FOUND)))))
    assert "is there in the end" in found


def test_records_that_are_cut_and_not_set_aside_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By older metadata a replica leads that lacks them."""

    async def cut_alone(*_arguments: object) -> None:
        """Nothing is copied."""

    monkeypatch.setattr(KeptLogs, "set_aside", cut_alone)
    found = next(filter(None, (_finding(seed, Disaster.OLDER) for seed in range(_SEEDS_UNTIL_FOUND))))
    assert "are nowhere" in found


def test_only_what_killed_nodes_had_just_before_may_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nodes that have not started since the copy; and what another folder has is not lost with theirs."""
    folders = {
        "/data/node-1": {b"just before", b"long before", b"elsewhere, too"},
        "/data/node-2": {b"started since"},
        "/data/node-3": {b"stopped in order", b"elsewhere, too"},
    }
    monkeypatch.setattr(disasters, "_data_files", lambda _disk, folder: [folder])
    monkeypatch.setattr(disasters, "_in", lambda _machine, folder: folders[folder])
    attempts = {value: SimpleNamespace(acknowledged_at_s=95.0) for values in folders.values() for value in values}
    attempts[b"long before"].acknowledged_at_s = 90.0
    machines = {
        1: SimpleNamespace(disk=None, starts=2, killed_at_s=100.0),
        2: SimpleNamespace(disk=None, starts=3, killed_at_s=100.0),
        3: SimpleNamespace(disk=None, starts=2, killed_at_s=None),
    }
    world: Any = SimpleNamespace(machines=machines, history=SimpleNamespace(attempts=attempts))
    copy: Any = SimpleNamespace(starts=dict.fromkeys(machines, 2))
    assert disasters._may_be_unknown(world, copy) == {b"just before"}


def _finding(seed: int, disaster: str = Disaster.LOST) -> str:
    try:
        live_through(seed, disaster)
    except SimulationError as error:
        return error.finding
    return ""
