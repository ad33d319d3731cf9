"""Files that are replaced in one step, and folders that one job has at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.pipeline.tables.errors import CheckpointError
from ottla.pipeline.tables.local_files import lock, replace_text


def test_a_file_is_replaced_with_what_hadoop_kept_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "job.json"
    replace_text(path, "one")
    (path.parent / ".job.json.crc").write_text("of the one before")
    replace_text(path, "zwölf")
    assert path.read_text(encoding="utf-8") == "zwölf"
    assert [entry.name for entry in path.parent.iterdir()] == ["job.json"]


def test_a_kill_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.json"
    replace_text(path, "one")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        replace_text(path, "two")
    assert path.read_text() == "one"
    monkeypatch.undo()
    replace_text(path, "three")
    assert path.read_text() == "three"


def refusal() -> CheckpointError:
    return CheckpointError("Another job that runs now has it.")


def test_one_job_at_a_time(tmp_path: Path) -> None:
    again = lock(tmp_path / "orders", refusal())
    with (
        lock(tmp_path / "orders", refusal()),
        pytest.raises(CheckpointError, match="Another job that runs now has"),
        again,
    ):
        pass
    with lock(tmp_path / "orders", refusal()), lock(tmp_path / "others", refusal()):
        pass


def test_a_killed_job_leaves_no_lock(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from ottla.pipeline.errors import PipelineError\n"
        "from ottla.pipeline.tables.local_files import lock\n"
        "with lock(Path(sys.argv[1]), PipelineError()):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError), lock(tmp_path, refusal()):
            pass
        job.kill()
        job.wait()
    with lock(tmp_path, refusal()):
        pass
