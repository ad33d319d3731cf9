"""`ottla proxy`: the ready line, the HTTP port, the end, and what it refuses."""

from __future__ import annotations

import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from tests.forked import Forked, run_forked


class ProxyProcess:
    """A proxy process on free ports."""

    def __init__(self, *flags: str) -> None:
        self._log = TemporaryFile("w+")  # noqa: SIM115
        self.process = Forked(["proxy", "--listen", "127.0.0.1:0", *flags], stderr=self._log)
        self.ready = json.loads(self.process.stdout.readline())

    def end(self) -> str:
        """Stop it; its log."""
        self.process.terminate()
        code = self.process.wait(120)
        self.process.stdout.close()
        with self._log as file:
            file.seek(0)
            log = file.read()
        assert code == 0, log
        return log


@pytest.fixture
def proxy(broker: Any) -> Iterator[ProxyProcess]:
    process = ProxyProcess("--upstream", broker.address, "--http", "127.0.0.1:0")
    yield process
    process.end()


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def refusal(*flags: str) -> str:
    done = run_forked(["proxy", *flags], stdin=b"", environment=os.environ)
    told = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b""), told
    assert told.startswith("ottla proxy: ")
    assert told.count("\n") == 1, told
    return told.removeprefix("ottla proxy: ").rstrip()


def test_commands_work_through_it_and_it_counts(broker: Any, proxy: ProxyProcess) -> None:
    assert proxy.ready["event"] == "ready"
    assert proxy.ready["brokers"] == 1
    address = f"{proxy.ready['host']}:{proxy.ready['port']}"
    broker.run("produce", "t", "--bootstrap", address, stdin=b"a\nb\n")
    assert broker.run("consume", "t", "--bootstrap", address, "-e").stdout == b"a\nb\n"
    status, text = get(f"{proxy.ready['http']}/metrics")
    assert status == 200
    assert 'ottla_proxy_requests_total{api="Produce"} 1\n' in text
    assert "ottla_proxy_brokers 1\n" in text
    shown = json.loads(
        broker.run(
            *("top", "--bootstrap", address, "--metrics", proxy.ready["http"], "--once", "--json", "--interval", "0.01")
        ).stdout
    )
    assert shown["broker"]["connections"] >= 1
    assert shown["broker"]["memory_bytes"] > 1 << 20
    assert "bytes_out_per_second" in shown["broker"]
    assert get(f"{proxy.ready['http']}/healthz") == (200, "ok\n")
    assert get(f"{proxy.ready['http']}/readyz") == (200, "ok\n")
    assert get(f"{proxy.ready['http']}/metrics", Host="evil.example.com")[0] == 421


def test_it_waits_for_an_upstream_that_is_down() -> None:
    process = ProxyProcess("--upstream", "127.0.0.1:1", "--http", "127.0.0.1:0")
    assert process.ready["brokers"] == 0
    assert get(f"{process.ready['http']}/readyz")[0] == 503
    assert "Connection refused" in process.end()


def test_settings_may_come_from_a_file_and_flags_win(broker: Any, tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(f'upstream = ["{broker.address}"]\nlisten = "nowhere:1"\nmemory = "1GiB"\nidle = "90s"\n')
    process = ProxyProcess("--config", str(file))
    assert process.ready["brokers"] == 1
    process.end()


def test_a_filter_may_lie_beside_its_file(broker: Any, tmp_path: Path) -> None:
    (tmp_path / "own_filters.py").write_text(
        "from ottla.proxy.filters.filter import Filter\n\n\nclass Nothing(Filter):\n    pass\n"
    )
    (tmp_path / "json.py").write_text("raise SystemExit('taken for the library')\n")
    file = tmp_path / "proxy.toml"
    file.write_text(f'upstream = ["{broker.address}"]\n[[filter]]\ntype = "own_filters:Nothing"\n')
    process = ProxyProcess("--config", str(file))
    assert process.ready["brokers"] == 1
    process.end()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("upstream = 5", "upstream: 5 is not a text"),
        ("upstream = ['a:1']\nmemry = 1", "'memry' is unknown; known are upstream, listen"),
        ("upstream = [", "is not TOML"),
        ("upstream = 'a:1'\nlisten = 'a:1'", "--listen a:1 is an address of --upstream: the proxy needs its own"),
        ("upstream = 'a:1'\nmemory = 'much'", "memory: 'much' is not a size below 2GiB: write one like 100MiB"),
        ("upstream = 'a:1'\nidle = 'never'", "idle: 'never' is not a time: write one like 90s or 11m"),
        ("upstream = 'a:1'\nmax-connections = 0", "max-connections: 0 is not a number above 0"),
        ("upstream = 'a:1'\ncache = '1MiB'", "cache: '1MiB' is less than 64MiB, which is too little"),
        ("upstream = 'a:1'\ncache = true", "cache: True is not a text"),
        ("upstream = 'a:1'\ncache-dir = '/tmp'", "cache-dir needs a cache: say how large it may be with --cache"),
        ("upstream = 'a:1'\ncache = '1GiB'\ncache-dir = '/no'", "/no is not a directory that can be written to"),
        ("upstream = 'a:1'\ncache = '1GiB'\ncache-topics = '('", "cache-topics: '(' is not a regular expression"),
        ("upstream = 'a:1'\nadvertise = 'a:1'", "advertise: 'a:1' has a port; write only the host"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    assert sentence in refusal("--config", str(file))


def test_what_the_command_line_may_not_say(broker: Any) -> None:
    assert refusal() == "say where the cluster is: --upstream HOST:PORT"
    assert "is not an address" in refusal("--upstream", "a b")
    assert "cannot read /none.toml" in refusal("--config", "/none.toml")
    taken = refusal("--upstream", "127.0.0.1:1", "--listen", broker.address)
    assert taken == f"cannot listen on {broker.address}: Address already in use"


def test_it_says_so_where_it_is_its_own_upstream() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--upstream", f"localhost:{port}", "--listen", f"127.0.0.1:{port}"]
    done = run_forked(["proxy", *flags], stdin=b"", environment=os.environ)
    told = done.stderr.decode()
    assert done.returncode == 1
    assert "Traceback" not in told
    assert "leads back to this proxy" in told.splitlines()[-1]
