"""`ottla serve --memory`: a broker for programs of any language, that leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.client.client import Client
from ottla.testing import Record, topics


def serve(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ottla.cli", "serve", "--port", "0", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


def test_its_ready_line_says_where_it_is_and_nothing_stays(tmp_path: Path) -> None:
    with serve(tmp_path, "--memory") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready"
        with Client([(ready["host"], ready["port"])]) as client:
            topics.produce(client, [Record("t", -1, -1, 5, None, b"x")], None)
            assert [record.value for record in topics.records(client, "t")] == [b"x"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--memory", "0"], ["--memory", "5", "--data-dir", "x"]])
def test_what_makes_no_sense_is_refused(tmp_path: Path, words: list[str]) -> None:
    with serve(tmp_path, *words) as process:
        _, told = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "--memory at least 1 MiB" in told
