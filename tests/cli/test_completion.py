"""`ottla completion`: what completes where, and that the shells accept the scripts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.completion import SCRIPTS, candidates


@pytest.mark.parametrize(
    ("before", "current", "expected"),
    [
        ([], "to", ["top", "topic"]),
        (["topic"], "d", ["delete", "delete-records", "describe"]),
        (["topic", "nonsense"], "", []),
        (["nonsense"], "", []),
        (["topic", "create", "t"], "--p", ["--partitions"]),
        (["dump", "--show"], "r", ["records", "runs"]),
        (["dump", "x", "--show"], "b", ["batches", "blocks"]),
        (["config", "get"], "to", ["topic"]),
        (["completion"], "", ["bash", "fish", "words", "zsh"]),
        (["produce", "t", "--partition"], "", []),
    ],
)
def test_candidates(before: list[str], current: str, expected: list[str]) -> None:
    assert candidates(before, current) == expected


def test_names_of_topics_and_groups_come_from_the_broker(broker: Any) -> None:
    broker.run("topic", "create", "orders", "offers", "users")
    broker.run("group", "seek", "readers", "orders", "--to", "earliest", "--execute", check=False)

    def words(*typed: str) -> list[str]:
        return str(broker.run("completion", "words", "--", *typed).stdout.decode()).splitlines()

    assert words("consume", "o") == ["offers", "orders"]
    assert words("topic", "delete", "users", "o") == ["offers", "orders"]
    assert words("consume", "orders", "o") == []
    assert words("topic", "alter", "orders", "--delete") == ["--delete-config"]
    assert words("topic", "alter", "--pa") == ["--partitions"]
    assert words("") == words()


def test_without_a_broker_names_are_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "127.0.0.1:1")  # a developer's own broker may run at the default address
    assert candidates(["topic", "describe"], "") == []


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_shell_accepts_its_script(broker: Any, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(broker.run("completion", shell).stdout)
    assert script.read_text() == SCRIPTS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path: Path) -> None:
    program = tmp_path / "ottla"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(ottla completion bash)"; COMP_WORDS=(ottla topic de); COMP_CWORD=2; _ottla; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False
    )
    assert done.stdout.split() == ["delete", "delete-records", "describe"]
