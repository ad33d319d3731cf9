"""`ottla serve` as a process of its own, and the other commands run against it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.forked import Forked, run_forked

OTTLA = [sys.executable, "-m", "ottla.cli"]


class Broker:
    """A broker process."""

    def __init__(self, data_dir: Path, *flags: str, log: IO[bytes] | None = None, port: bool = True) -> None:
        """`port`: at a free port, unless the flags say where."""
        where = ("--port", "0") if port else ()
        self.process = Forked(["serve", *where, "--data-dir", str(data_dir), *flags], stderr=log)
        self.ready_line = self.process.stdout.readline()
        self.ready = json.loads(self.ready_line) if self.ready_line else {}

    @property
    def address(self) -> str:
        return f"{self.ready['host']}:{self.ready['port']}"

    def run(self, *arguments: str, stdin: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
        """Run another command against this broker."""
        environment = {"OTTLA_BOOTSTRAP": self.address, "PATH": "/usr/bin:/bin"}
        done = run_forked(arguments, stdin=stdin, environment=environment)
        if check:
            assert done.returncode == 0, done.stderr.decode()
        return done

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the process and return its exit code."""
        self.process.send_signal(number)
        self.process.stdout.close()
        return self.process.wait(120)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path / "data")
    yield running
    if running.process.poll() is None:
        assert running.stop() == 0


@pytest.fixture
def broker_class() -> type[Broker]:
    """For brokers on folders of the test's own."""
    return Broker
