"""What an example's README says to type works: in a clone, with nothing but what it says to install."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READMES = sorted((ROOT / "examples").glob("*/README.md"))

_COMMAND = re.compile(r"^    (pytest .*)$", re.MULTILINE)
_INSTALLED = re.compile(r"^    pip install \S+\[test\]\"? (\S+)$", re.MULTILINE)
_MODULES = {"confluent-kafka": "confluent_kafka", "aiokafka": "aiokafka"}
COMMANDS = [
    pytest.param(readme, command, id=readme.parent.name)
    for readme in READMES
    for command in _COMMAND.findall(readme.read_text())
]


def test_there_are_commands() -> None:
    assert [parameters.id for parameters in COMMANDS] == ["faults", "orders"]


@pytest.mark.parametrize(("readme", "command"), COMMANDS)
def test_its_tests_run(readme: Path, command: str, tmp_path: Path) -> None:
    (library,) = _INSTALLED.findall(readme.read_text())
    pytest.importorskip(_MODULES[library])
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    program, *words = shlex.split(command)
    for plugin in ("cacheprovider", "timeout", "trio", "xdist", "hypothesispytest"):
        words += ["-p", f"no:{plugin}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [Path(sys.executable).with_name(program), *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b[1-9]\d* passed", done.stdout)
