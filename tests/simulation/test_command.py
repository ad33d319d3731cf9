"""`ottla simulate`."""

from __future__ import annotations

import re

import pytest

from ottla.cli import main
from ottla.simulation.cluster.checks import ending


def test_a_seed_is_told_with_its_hash(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--seconds", "1", "--faults", "kill,cut"]) == 0
    told = capfd.readouterr().out.splitlines()
    assert re.fullmatch("[0-9a-f]{64}", told[-1])
    assert told[0].endswith("node 1 starts")


def test_a_failure_is_told_with_the_faults_that_it_needs(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node stops in less than no time, whatever befalls it."""
    monkeypatch.setattr(ending, "_STOP_S", -1.0)
    assert main(["simulate", "--first", "7", "--seeds", "2", "--seconds", "2"]) == 1
    told = capfd.readouterr().out.splitlines()
    assert re.fullmatch(r"seed 7: node 1 has taken [0-9.]+ s to stop", told[0])
    assert any(re.match(r"fails with 0 of [1-9] parts: node 1 has taken", line) for line in told)
    assert "to see it: --seed 7 --only none" in told


def test_several_processes_find_what_one_finds(capfd: pytest.CaptureFixture[str]) -> None:
    told = []
    for jobs in ("1", "2"):
        words = ["simulate", "--nodes", "1", "--seeds", "11", "--seconds", "0.1", "--faults", "none", "--jobs", jobs]
        assert main(words) == 0
        told.append(re.sub(r" in [0-9]+ s", "", capfd.readouterr().out))
    assert told[0].startswith("11 seeds from 0 on, 0 of them failed")
    assert told[0] == told[1]


@pytest.mark.parametrize("what", ["storage", "coordinators"])
def test_every_simulation_is_run_by_one_command(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", what, "--seed", "3"]) == 0
    whole = capfd.readouterr().out.splitlines()
    assert re.fullmatch("[0-9a-f]{64}", whole[-1])
    assert main(["simulate", what, "--seed", "3", "--only", "none"]) == 0
    assert len(capfd.readouterr().out.splitlines()) < len(whole)
    assert main(["simulate", what, "--seeds", "2", "--jobs", "1"]) == 0
    assert capfd.readouterr().out.startswith("2 seeds from 0 on in")


def test_a_planted_fault_is_counted(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "coordinators", "--planted", "known by its name"]) == 0
    assert re.match(r" +[0-9]+ seeds +[0-9.]+ s of CPU  a deleted topic's offsets are known", capfd.readouterr().out)


def test_faults_that_there_are_not(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--faults", "kill,flood"])
    assert "there are no faults called flood" in capfd.readouterr().err
