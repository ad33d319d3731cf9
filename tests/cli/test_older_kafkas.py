"""The commands speak to the Kafkas that people run: each does its work with brokers of earlier releases, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import main
from ottla.testing import Broker

RELEASES = ("2.5", "2.8", "3.3", "3.9", "4.0")
COMMANDS = (
    "topic create new --partitions 2 --config retention.ms=1000",
    "topic create --if-not-exists new",
    "topic list",
    "topic describe new",
    "topic alter new --partitions 3 --config retention.ms=2000",
    "produce new {file}",
    "consume new -c 1",
    "consume new -g readers -c 1",
    "group list",
    "group describe readers",
    "group seek readers --to beginning",
    "topic delete-records new --before end",
    "config get topic new",
    "config set topic new retention.ms=3000",
    "config unset topic new retention.ms",
    "config get broker 1 --all",
    "group delete readers",
    "cluster apis",
    "cluster features",
    "log-dirs",
    "topic delete new",
)
LATER = {
    "quota list": "2.6",
    "user list": "2.7",
    "transaction list": "3.0",
    "cluster describe": "2.8",
}


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(release: str) -> Iterator[Broker]:
    with Broker(max_versions=release) as broker:
        yield broker


def test_every_command_does_its_work(
    broker: Broker, release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "values"
    file.write_text("one\ntwo\nthree\n")
    commands = [*COMMANDS, *(command for command, since in LATER.items() if _number(since) <= _number(release))]
    failed = {}
    for command in commands:
        words = [word.format(file=file) for word in command.split()]
        if main([*words, "-b", broker.bootstrap]):
            failed[command] = capsys.readouterr().err
    assert failed == {}


def test_what_came_later_says_so(broker: Broker, release: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (command for command, since in LATER.items() if _number(since) > _number(release)):
        assert main([*command.split(), "-b", broker.bootstrap]) == 1
        assert "does not" in capsys.readouterr().err, command


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
