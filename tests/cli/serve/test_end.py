"""What is left to do when a node has stopped."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from ottla.cli import main
from ottla.cli.serve import node_process
from ottla.runtime import logs


def test_the_end_of_the_interpreter_looks_for_no_garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among what a node with many topics had it would look for seconds."""
    monkeypatch.setattr(node_process, "run_node", lambda *arguments: None)
    monkeypatch.setattr(logs, "configure", lambda *arguments: None)
    before = gc.get_freeze_count()
    enabled = gc.isenabled()
    try:
        assert main(["serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]) == 0
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
