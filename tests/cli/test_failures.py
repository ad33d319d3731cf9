"""A command that fails says so in one line, which says what to do; usage that is wrong, which word was meant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import main
from ottla.testing import Broker

#: What a person gets wrong, and what the line tells them to do.
FAILURES = {
    "topic describe nope": "create it with `ottla topic create nope`",
    "topic create new -c retntion.ms=1": "Did you mean retention.ms?",
    "produce t nothing-there": "cannot read nothing-there",
    "produce t --partition 77 file": "partitions 0 to 0",
    "consume nope": "create it with `ottla topic create nope`",
    "consume t -o yesterday": "write beginning, end, now,",
    "consume t -f %z": "there are %t",
    "group describe nope": "see `ottla group list`",
    "group seek nope --to end": "name the topics to seek in",
    "group delete nope": "see `ottla group list`",
    "transaction describe nope": "see `ottla transaction list`",
    "transaction abort nope": "see `ottla transaction list`",
    "config get topic nope": "see `ottla topic list`",
    "config set broker 7 log.retention.ms=1": "try again",
    "quota set --user u consumer_byte_rte=1": "Did you mean consumer_byte_rate?",
    "acl list": "start the broker with an authorizer",
    "replay nothing-there": "cannot read nothing-there",
    "topic list -b 127.0.0.1:1": "Name another with --bootstrap",
    "topic list --command-config nothing-there": "cannot be read",
}
MEANT = {
    "topc list": "did you mean topic?",
    "topic lst": "did you mean list?",
    "topic list --jsn": "did you mean --json?",
    "group list --type shar": "did you mean share?",
    "consum t": "did you mean consume?",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t")
        yield broker


@pytest.mark.parametrize(("command", "advice"), FAILURES.items())
def test_it_is_said_in_one_line(
    command: str,
    advice: str,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x\n")
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    assert main(command.split()) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"ottla {command.split()[0]}: ")
    assert advice in said


@pytest.mark.parametrize(("command", "meant"), MEANT.items())
def test_the_word_that_was_meant_is_named(command: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(command.split())
    assert capsys.readouterr().err.rstrip().endswith(meant)
