"""Progress of long work: on a terminal only, and on standard error."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.options import Progress


def test_without_a_terminal_nothing_is_shown(broker: Any, tmp_path: Path) -> None:
    done = broker.run("produce", "t", stdin=b"a\nb\n")
    assert b"records" not in done.stderr
    assert broker.stop() == 0
    assert broker.run("fsck", "--data-dir", str(tmp_path / "data")).stderr == b""


@pytest.mark.parametrize("command", ["backup", "fsck", "dump"])
def test_a_terminal_sees_a_bar(broker: Any, tmp_path: Path, command: str) -> None:
    broker.run("produce", "t", stdin=b"a\nb\n")
    assert broker.stop() == 0
    data_dir = str(tmp_path / "data")
    arguments = {
        "backup": ["--data-dir", data_dir, str(tmp_path / "target")],
        "fsck": ["--data-dir", data_dir],
        "dump": [data_dir],
    }[command]
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "ottla.cli", command, *arguments]
    done = subprocess.run(program, stderr=theirs, stdout=subprocess.PIPE, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "[##############################] 100%" in shown
    assert b"100%" not in done.stdout


def test_a_bar_says_how_much_is_left() -> None:
    progress = Progress("copied")
    later = progress._started + 10.0
    progress.set_bytes(25_000_000, 100_000_000)
    assert (
        progress._line(later) == "copied [########......................]  25%  25.0 of 100.0 MB, 2.5 MB/s, 30 s left"
    )
    progress.set_bytes(0, 0)
    assert "100%" in progress._line(later)
