"""The load generator in C, built when it is first needed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("bench.c")
PROGRAM = Path(".cache/bench")
TIMEOUT_S = 900


class MissingToolError(Exception):
    """Something that the benchmarks need is not installed; the message says what."""


def build() -> Path:
    """Compile the load generator unless that was done since it last changed. Raises MissingToolError."""
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > SOURCE.stat().st_mtime:
        return PROGRAM
    if shutil.which("cc") is None:
        raise MissingToolError("a C compiler is needed: install gcc")
    PROGRAM.parent.mkdir(exist_ok=True)
    command = ["cc", "-O2", "-pthread", "-o", str(PROGRAM), str(SOURCE), "-lrdkafka"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise MissingToolError(f"cannot build {SOURCE.name}; is librdkafka-dev installed?\n{built.stderr}")
    return PROGRAM


def run(*words: object) -> dict[str, Any]:
    """Run the load generator and return what it measured. Raises CalledProcessError if anything was not delivered."""
    command = [str(build().absolute()), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured
