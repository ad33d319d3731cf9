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


def test_a_kafka_3_9_with_classic_groups_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It offers ConsumerGroupDescribe, and answers UNSUPPORTED_VERSION unless its new groups are enabled."""
    file = tmp_path / "values"
    file.write_text("one\n")
    with Broker() as broker:
        broker.faults.fail("ConsumerGroupDescribe", "UNSUPPORTED_VERSION")
        broker.create_topic("t")
        for command in (f"produce t {file}", "consume t -g g -c 1", "group describe g", "group seek g t --to start"):
            assert main([*command.split(), "-b", broker.bootstrap]) == 0, capsys.readouterr().err
    assert "g  classic  Empty" in capsys.readouterr().out


def test_settings_of_a_topic_are_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        broker.create_topic("plain")
        broker.create_topic("own", configs={"retention.ms": "60000"})
        main(["topic", "describe", "plain", "own", "-b", broker.bootstrap])
    said = capsys.readouterr().out
    assert "settings: all default\n" in said
    assert "settings: retention.ms=60000 (1m)\n" in said
