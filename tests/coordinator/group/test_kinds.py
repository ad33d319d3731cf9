"""A kind of group is declared once, by its class, and what differs between kinds is said there."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import trio

from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.group import Group
from ottla.runtime.purgatory import Purgatory
from ottla.storage.clock import ManualClock
from tests.rooms import BROKER, ROOT, sources

BOUNDARIES = {"coordinator/group/shard/shard.py": 1}
"""Where a group is looked for by its class: what a file may ask, and how often."""


def kinds() -> list[Any]:
    """The classes below `Group` that are no bases themselves."""
    found: list[Any] = []
    unseen: list[Any] = [Group]
    while unseen:
        below = unseen.pop().__subclasses__()
        found += [each for each in below if "kind" in vars(each)]
        unseen += below
    return found


def of_what_a_group_is(path: Path) -> int:
    """How often a file asks of which class a group is."""
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and "group" in ast.unparse(node.args[0]).lower().split(".")[-1]
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_nobody_asks_of_which_class_a_group_is() -> None:
    files = sources(*BROKER, "simulation")
    assert len(files) > 300
    asked = {str(path.relative_to(ROOT)): count for path in files if (count := of_what_a_group_is(path))}
    assert asked == BOUNDARIES


async def test_the_coordinator_runs_every_kind_under_its_own_name_and_keys() -> None:
    found = kinds()
    assert sorted(each.kind for each in found) == ["classic", "consumer", "share", "streams"]
    keys = [key for each in found for key in each.key_types()]
    assert len(keys) == len(set(keys)) == 19
    async with trio.open_nursery() as nursery:
        coordinator = GroupCoordinator(
            node_id=0,
            config=GroupConfig(),
            clock=ManualClock(),
            log=Mock(),
            topics=Mock(),
            purgatory=Purgatory("group"),
            nursery=nursery,
        )
        for each in found:
            group: Any = each("g", now_ms=0) if each.kind == "classic" else each("g")
            protocol = coordinator._protocols.of(group)
            assert protocol.group_class is each
            assert (coordinator._protocols.of_key(each.key_types()[0]) is protocol) == (each.kind != "classic")
        nursery.cancel_scope.cancel()
