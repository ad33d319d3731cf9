"""Logins that do not wait: at the broker, and through proxies with a cache and filters by principal.

`make handshakes` draws more of them. A seed that fails is named, and draws the same ones again (HANDSHAKES_SEED). What
a conversation says depends only on the seed and on the challenges that it gets.
"""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio

pytest.importorskip("cryptography")

from ottla.proxy.cache import seen, topics
from ottla.security import sasl
from tests.security.doors import HOST, opened, read
from tests.security.handshakes import ViolationError
from tests.security.hasty import FAULTS, SYMPTOM_OF_FILTERS
from tests.security.logins import Door, Login

COUNT: Final = int(os.environ.get("HANDSHAKES", "300"))
SEED: Final = int(os.environ.get("HANDSHAKES_SEED", "7"))
_AT_ONCE: Final = 20
_UNTIL_FOUND: Final = 2000
BROKER: Final = "broker"
PASSES_ON: Final = "proxy that passes logins on"
OWN: Final = "proxy with logins of its own"


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What upstream has allowed to alice counts for as long as the test lasts, and who may log in again may at once."""
    monkeypatch.setattr(seen, "COUNTS_SECONDS", 1e6)
    monkeypatch.setattr(topics, "COUNTS_SECONDS", 1e6)
    monkeypatch.setattr(sasl, "_MIN_SECONDS_BETWEEN", 0.0)


async def converse(door: Door, numbers: range, counted: Counter[str]) -> None:
    """Hold these conversations, some at a time. Raises the first ViolationError."""
    slots = trio.CapacityLimiter(_AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            stream = await trio.open_tcp_stream(HOST, door.port)
            try:
                await Login(stream, random.Random(SEED * 1_000_003 + number), door, counted).run()
            except ViolationError as violation:
                violation.add_note(f"{door.name}, HANDSHAKES_SEED={SEED}, conversation {number}")
                raise
            counted["held"] += 1

    async with trio.open_nursery() as nursery:
        for number in numbers:
            nursery.start_soon(one, number)


@pytest.mark.timeout(120 + COUNT)
@pytest.mark.parametrize("kind", [BROKER, PASSES_ON, OWN])
async def test_nothing_is_answered_but_to_whom_the_answers_have_let_in(
    serve_node: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.INFO)
    counted: Counter[str] = Counter()
    (tmp_path / "cache").mkdir()
    async with opened(serve_node, kind, str(tmp_path / "cache")) as door:
        await converse(door, range(COUNT), counted)
        assert await read(door.port, "alice", door.topic_ids["secret"])
    # Each of these must have been there, or nothing was tried.
    expected = ("let in", "let in again", "refused", "metadata", "records of secret", "records of public", "ended")
    assert not [it for it in expected if not counted[it]], counted
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
async def test_identities_that_are_not_ordered_by_answers_are_found(
    serve_node: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Faults planted in the proxy, which it once had."""
    plant, symptom = FAULTS[fault]
    monkeypatch.setattr("ottla.proxy.exchange.Admission", plant)
    counted: Counter[str] = Counter()
    (tmp_path / "cache").mkdir()
    async with opened(serve_node, PASSES_ON, str(tmp_path / "cache")) as door:
        door = door._replace(is_stamped=symptom is SYMPTOM_OF_FILTERS)
        with pytest.RaisesGroup(pytest.RaisesExc(ViolationError, match=symptom), flatten_subgroups=True):
            for first in range(0, _UNTIL_FOUND, _AT_ONCE):
                await converse(door, range(first, first + _AT_ONCE), counted)
    print(f"{fault}: found after {counted['held']} conversations")
