"""What others on the machine may read of a broker's folder and of its backups: nothing."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Broker
from tests.forked import run_forked

Modes = dict[str, int]


@pytest.fixture(params=[0o000, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def ottla(*words: str, stdin: str = "") -> str:
    done = run_forked(words, stdin=stdin.encode(), environment=os.environ)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def others_may_read(folder: Path) -> Modes:
    """Whatever has another mode than it should."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            found[str(path)] = mode
    return found


@pytest.mark.parametrize("how", [(), ("--secure",)])
def test_nobody_else_may_read_what_a_broker_makes(tmp_path: Path, umask: int, how: tuple[str, ...]) -> None:
    if how:
        pytest.importorskip("cryptography")
    data = tmp_path / "new" / "data"
    broker = Broker(data, *how)
    try:
        client = ["-b", broker.address]
        if how:
            client += ["--command-config", str(data / "security" / "client.properties")]
        ottla("produce", "orders", *client, stdin="a\nb\n")
        ottla("consume", "orders", "--group", "billing", "--count", "2", *client)
        ottla("backup", "--data-dir", str(data), str(tmp_path / "backups" / "one"))
        while_it_runs = others_may_read(data)
        names = {path.name for path in data.rglob("*")}
    finally:
        assert broker.stop() == 0
    assert {"cluster.sqlite", "cluster.sqlite-wal", "cluster.sqlite-shm", "node.json", "lock"} <= names
    assert any(name.endswith(".data") for name in names)
    assert while_it_runs == {}
    assert others_may_read(data.parent) == {}
    ottla("restore", str(tmp_path / "backups" / "one"), "--data-dir", str(tmp_path / "restored" / "data"))
    (data / "cluster.sqlite").unlink()
    ottla("restore", "--metadata-from-data", "--data-dir", str(data))
    for made in (data, tmp_path / "backups", tmp_path / "restored"):
        assert (made, others_may_read(made)) == (made, {})


def test_a_folder_that_others_may_read_is_used_and_doctor_says_so(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()

    def found(mode: int) -> dict[str, str]:
        data.chmod(mode)
        findings = json.loads(ottla("doctor", "--port", "0", "--data-dir", str(data), "--json"))
        (finding,) = (it for it in findings if it["subject"] == "readers of the data folder")
        return dict(finding)

    wide = found(0o755)
    assert (wide["level"], wide["advice"]) == ("warn", f"chmod -R go= {data}")
    assert "every user" in wide["message"]
    assert "its group" in found(0o750)["message"]
    assert found(0o2770)["level"] == "ok"  # as Kubernetes does for fsGroup
    assert found(0o700)["level"] == "ok"
