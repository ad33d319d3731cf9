"""`ottla serve --registry` and `ottla registry`: the ready lines, who is let in, several nodes, and the end."""

from __future__ import annotations

import base64
import json
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import pytest
import trio
import trio.testing

from ottla.cli import registry
from tests.cli.conftest import OTTLA


@contextmanager
def started(*words: str) -> Iterator[dict[str, Any]]:
    """A command while it runs, by its ready line; it has to end in order."""
    process = subprocess.Popen([*OTTLA, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        assert line, process.communicate(timeout=60)[1]
        yield json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=120)
    assert process.returncode == 0, log


def ask(url: str, body: object = None, *, user: str | None = None, authority: Path | None = None, **more: str) -> Any:
    """Status and answer."""
    headers = {"Content-Type": "application/json", **more}
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    context = ssl.create_default_context(cafile=None if authority is None else str(authority))
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    data = None if body is None else json.dumps(body).encode()
    try:
        with opener.open(Request(url, data=data, headers=headers), timeout=120) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


STRING = {"schema": '"string"'}


def test_a_broker_serves_it_and_another_one_can_run_beside_it() -> None:
    with started("serve", "--port", "0", "--memory", "64", "--registry", "127.0.0.1:0") as broker:
        url = broker["registry"]
        assert ask(f"{url}/subjects/a%2Fb/versions", STRING)[1]["id"] == 1
        assert ask(f"{url}/subjects") == (200, ["a/b"])
        # A page of another site, whose name was made to point here.
        assert ask(f"{url}/subjects", Host="evil.example.com")[0] == 421
        upstream = f"127.0.0.1:{broker['port']}"
        with started("registry", "--upstream", upstream, "--listen", "127.0.0.1:0") as alone:
            assert ask(f"{alone['registry']}/schemas/ids/1")[1]["schema"] == '"string"'
            assert ask(f"{alone['registry']}/subjects/t/versions", {"schema": '"int"'})[1]["id"] == 2


def test_with_secure_it_asks_for_the_administrator(tmp_path: Path) -> None:
    words = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--secure", "--registry", "127.0.0.1:0"]
    with started("serve", *words) as broker:
        url, authority = f"{broker['registry']}/subjects", tmp_path / "security/ca.pem"
        password = (tmp_path / "security/admin.password").read_text().strip()
        assert url.startswith("https://")
        assert ask(url, authority=authority)[0] == 401
        assert ask(url, authority=authority, user=f"admin:{password}x")[0] == 401
        answer = ask(f"{url}/s/versions", STRING, authority=authority, user=f"admin:{password}")
        assert answer[1].get("id") == 1, answer


def test_every_node_answers_and_writes(tmp_path: Path) -> None:
    words = ["--listen", "127.0.0.1:0", "--nodes", "3", "--data-dir", str(tmp_path), "--registry", "127.0.0.1:0"]
    with started("serve", *words) as cluster:
        urls = [node["registry"] for node in cluster["nodes"]]
        ids = [
            ask(
                f"{url}/subjects/s{number}/versions",
                {"schema": json.dumps({"type": "fixed", "name": f"F{number}", "size": 1})},
            )[1]["id"]
            for number, url in enumerate(urls)
        ]
        assert sorted(ids) == [1, 2, 3]


def test_nodes_with_tls_and_users_forward_to_the_one_that_writes(tmp_path: Path) -> None:
    words = ["--listen", "127.0.0.1:0", "--nodes", "2", "--data-dir", str(tmp_path), "--secure"]
    with started("serve", *words, "--registry", "127.0.0.1:0") as cluster:
        authority = tmp_path / "security/ca.pem"
        user = f"admin:{(tmp_path / 'security/admin.password').read_text().strip()}"
        urls = [node["registry"] for node in cluster["nodes"]]
        assert all(url.startswith("https://") for url in urls)
        for number, url in enumerate(urls):
            schema = {"schema": json.dumps({"type": "fixed", "name": f"F{number}", "size": 1})}
            answer = ask(f"{url}/subjects/s{number}/versions", schema, authority=authority, user=user)
            assert answer[1].get("id") == number + 1, answer
            # The rights are those of who asked, also where the request was forwarded.
            assert ask(f"{url}/subjects/t/versions", schema, authority=authority, user="admin:x")[0] == 401


def test_what_it_refuses() -> None:
    for words in (["--upstream", "nowhere:x"], ["--upstream", "127.0.0.1:1", "--listen", "x"]):
        done = subprocess.run([*OTTLA, "registry", *words], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("reads_in_seconds", [5, 3600])
async def test_garbage_is_collected_from_when_the_topic_has_been_read_or_30_seconds(
    reads_in_seconds: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    began_at: list[float] = []
    monkeypatch.setattr(registry, "collect_seldom", lambda: began_at.append(trio.current_time()))
    has_read, start = trio.Event(), trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registry._collect_after_reading, has_read)
        await trio.sleep(reads_in_seconds)
        has_read.set()
    assert began_at == [start + min(reads_in_seconds, 30)]
