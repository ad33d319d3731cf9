"""Pauses between attempts grow to a maximum, and no two tasks that failed together need try again together."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import trio
import trio.testing

from ottla.runtime.backoff import JITTER, Backoff, pause_seconds
from tests.rooms import BROKER, ROOT, sources


def test_each_pause_is_about_twice_the_one_before_up_to_the_maximum() -> None:
    backoff = Backoff(0.1, 2.0)
    pauses = [backoff.fail() for _ in range(2000)]
    for pause, expected in zip(pauses, (0.1, 0.2, 0.4, 0.8, 1.6), strict=False):
        assert expected * (1 - JITTER) <= pause <= min(2.0, expected * (1 + JITTER))
    assert max(pauses) <= 2.0
    assert min(pauses[5:]) >= 2.0 * (1 - JITTER)
    assert backoff.failures == 2000


def test_a_success_begins_anew() -> None:
    backoff = Backoff(1.0, 60.0)
    for _ in range(5):
        backoff.fail()
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.fail() <= 1.0 * (1 + JITTER)


def test_those_that_failed_together_do_not_try_again_together() -> None:
    assert len({pause_seconds(3, 0.1, 10.0) for _ in range(100)}) > 90


@pytest.mark.frozen_clock
async def test_waiting_takes_the_pause(autojump_clock: trio.testing.MockClock) -> None:
    backoff = Backoff(1.0, 60.0)
    await backoff.wait()
    assert 1 - JITTER <= trio.current_time() <= 1 + JITTER
    assert backoff.failures == 1


def doubled(path: Path) -> list[int]:
    """The lines where a pause is doubled by hand: a minimum of a maximum and twice, or a power of two of, something."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "min":
            text = ast.unparse(node).lower()
            grows = any(sign in text for sign in ("2 *", "* 2", "1 <<", "2 **"))
            if grows and any(word in text for word in ("pause", "backoff", "seconds")):
                found.append(node.lineno)
    return found


def test_nobody_computes_pauses_by_hand() -> None:
    files = sources(*BROKER, "runtime", "metrics")
    assert len(files) > 300
    assert {str(path.relative_to(ROOT)): lines for path in files if (lines := doubled(path))} == {}
