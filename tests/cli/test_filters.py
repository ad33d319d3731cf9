"""The commands do their work through each of the proxy's filters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import main
from ottla.testing import Broker
from tests.cli.proxy.test_proxy import ProxyProcess
from tests.cli.test_older_kafkas import COMMANDS, LATER

FILTERS = {
    "audit": 'file = "audit.jsonl"',
    "encryption": 'topics = "new"\nkeys = { file = "keys.toml" }',
    "faults": 'rules = [{ api = "Produce", delay-ms = 1 }]',
    "limits": 'topics = "new"\nmax-record-bytes = 1000\nmax-partitions = 5',
    "recorder": 'topics = "new"\nfile = "new.recording"',
    "tenants": 'prefix = "team-a."',
    "validation": 'topics = "new"\njson-schema = "any.json"',
}
#: What concerns the whole cluster is not offered to tenants, who are told so.
NOT_FOR_TENANTS = {"quota list", "user list"}


@pytest.fixture(params=FILTERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a proxy with this filter."""
    monkeypatch.chdir(tmp_path)
    Path("keys.toml").write_text('current = "k1"\n[keys]\nk1 = "' + "A" * 43 + '="\n')
    Path("keys.toml").chmod(0o600)
    Path("any.json").write_text("true")
    Path("proxy.toml").write_text(f'[[filter]]\ntype = "{kind}"\n{FILTERS[kind]}\n')
    with Broker() as broker:
        process = ProxyProcess("--config", "proxy.toml", "--upstream", broker.bootstrap)
        yield f"{process.ready['host']}:{process.ready['port']}"
        process.end()


def test_every_command_does_its_work(proxy: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "values"
    file.write_text("1\n2\n3\n")
    failed = {}
    for command in [*COMMANDS, *LATER]:
        words = [word.format(file=file) for word in command.split()]
        if main([*words, "-b", proxy]):
            failed[command] = capsys.readouterr().err
    expected = NOT_FOR_TENANTS if kind == "tenants" else set()
    assert failed.keys() == expected, json.dumps(failed, indent=1)
    assert all("does not serve" in said for said in failed.values()), failed
