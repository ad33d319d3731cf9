"""Starting the brokers of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.measuring import brokers
from compat_tests.brokers.process import BrokerStartError


class Broker:
    """Starts when its turn has come."""

    def __init__(self, folder: Path, starts: bool) -> None:
        self.folder = folder
        self.starts = starts
        self.killed = False

    def start(self) -> None:
        if not self.starts:
            raise BrokerStartError("address already in use")

    def kill(self) -> None:
        self.killed = True


def offer(monkeypatch: pytest.MonkeyPatch, turns: Iterator[bool]) -> list[Broker]:
    made: list[Broker] = []

    def make(folder: Path) -> Broker:
        made.append(Broker(folder, next(turns)))
        return made[-1]

    monkeypatch.setattr(brokers, "BROKERS", {"kafka": make})
    return made


def test_a_broker_that_does_not_start_is_tried_again_on_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    made = offer(monkeypatch, iter([False, True]))

    with brokers.fresh("kafka") as broker:
        assert broker.folder == made[1].folder
        assert made[0].folder != made[1].folder

    assert [each.killed for each in made] == [False, True]


def test_it_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    made = offer(monkeypatch, iter([False] * 9))

    with pytest.raises(BrokerStartError, match="in use"), brokers.fresh("kafka"):
        pytest.fail("it did not start")

    assert len(made) == 3


def test_a_broker_is_killed_when_its_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    made = offer(monkeypatch, iter([True]))

    with pytest.raises(TimeoutError), brokers.fresh("kafka"):
        raise TimeoutError

    assert made[0].killed
