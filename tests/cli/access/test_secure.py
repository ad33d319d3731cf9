"""`ottla serve --secure` and `ottla cert`: what they make, that it works, and that nobody else may read it."""

from __future__ import annotations

import json
import os
import ssl
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ottla.cli.access.secure import settings
from ottla.security.certificates import Pair, issue
from ottla.settings.config import ConfigError
from tests.forked import Forked, run_forked

pytest.importorskip("cryptography")


def ottla(*words: str, code: int = 0, stdin: str = "") -> str:
    done = run_forked(words, stdin=stdin.encode(), environment=os.environ)
    assert done.returncode == code, done.stderr.decode()
    return (done.stdout + done.stderr).decode()


@contextmanager
def started(folder: Path, *flags: str) -> Iterator[dict[str, Any]]:
    """What a secure broker says when it serves."""
    words = ["serve", "--secure", "--listen", "127.0.0.1:0", "--data-dir", str(folder), *flags]
    with (folder.parent / "log").open("w") as log:
        process = Forked(words, stderr=log)
    try:
        line = process.stdout.readline()
        assert line, (folder.parent / "log").read_text()
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[tuple[str, Path]]:
    """The address of a secure broker, and the folder of its keys."""
    with started(folder, *flags) as ready:
        yield f"127.0.0.1:{ready['port']}", folder / "security"


def test_on_an_empty_folder_and_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data) as (bootstrap, keys):
        admin = ["-b", bootstrap, "--command-config", str(keys / "client.properties")]
        ottla("topic", "create", "t", *admin)
        password = (keys / "admin.password").read_text().strip()
        for path in keys.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert stat.S_IMODE(keys.stat().st_mode) == 0o700
        said = (tmp_path / "log").read_text()
        assert f"kcat -L -b {bootstrap} -F {keys / 'librdkafka.properties'}" in said
        assert password not in said
        # Without a password, and without an authority that is trusted, nobody is let in.
        assert "the connection" in ottla("topic", "list", "-b", bootstrap, code=1)
        librdkafka = ["-b", bootstrap, "--command-config", str(keys / "librdkafka.properties")]
        assert ottla("topic", "list", *librdkafka).splitlines()[1].startswith("t ")
        # A user may do nothing until an entry allows it.
        made = ottla("user", "add", "alice", "--generate", *admin).strip()
        alice = keys.parent.parent / "alice.properties"
        alice.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password={made}\n"
            f"ssl.ca.location={keys / 'ca.pem'}\n"
        )
        by_alice = ["-b", bootstrap, "--command-config", str(alice)]
        assert len(ottla("topic", "list", *by_alice).splitlines()) == 1
        ottla("acl", "add", "alice", "describe", "topic:t", *admin)
        assert len(ottla("topic", "list", *by_alice).splitlines()) == 2
    with served(data) as (bootstrap, keys):
        assert (keys / "admin.password").read_text().strip() == password
        assert "alice" in ottla("user", "list", "-b", bootstrap, "--command-config", str(keys / "client.properties"))


def test_only_its_own_files_have_secrets(tmp_path: Path) -> None:
    """As docs/security.md says."""
    data = tmp_path / "data"
    with served(data, "--console", "127.0.0.1:0") as (bootstrap, keys):
        admin = ["-b", bootstrap, "--command-config", str(keys / "client.properties")]
        made = ottla("user", "add", "alice", "--generate", *admin).strip()
        ottla("topic", "create", "t", *admin)
    secrets = [(keys / "admin.password").read_bytes().strip(), made.encode(), b"PRIVATE KEY"]
    holders = {
        path.relative_to(data).as_posix()
        for path in data.rglob("*")
        if path.is_file() and any(secret in path.read_bytes() for secret in secrets)
    }
    named = {"admin.password", "client.properties", "librdkafka.properties"}
    assert holders == {f"security/{name}" for name in named | {"ca.key", "broker.pem"}}
    page = (Path(__file__).parents[3] / "docs/security.md").read_text()
    assert all(f"`{name}`" in page for name in named)
    assert "the keys" in page


def test_certificates_for_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "there is no authority" in ottla("cert", "alice", "--data-dir", str(data), code=1)
    with served(data):
        pass
    output = tmp_path / "two.pem"
    words = ["cert", "CN=two,O=Ottla", "--host", "two.example", "--data-dir", str(data), "--output", str(output)]
    assert ottla(*words).strip() == str(output)
    assert stat.S_IMODE(os.stat(output).st_mode) == 0o600
    assert b"PRIVATE KEY" in output.read_bytes()
    assert b"BEGIN CERTIFICATE" in output.read_bytes()
    assert "exists already" in ottla(*words, code=1)


def test_its_console_asks_for_the_same_user(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data, "--console", "127.0.0.1:0") as (_, keys):
        said = (tmp_path / "log").read_text()
        url = next(word.strip(",()") for word in said.split() if word.startswith('"https://') or "https://" in word)
        url = url[url.index("https://") :].split('"')[0]
        trusted = ssl.create_default_context(cafile=str(keys / "ca.pem"))
        with httpx.Client(verify=trusted, base_url=url, timeout=60) as client:
            assert client.get("/console/topics").headers["location"].startswith("/console/login")
            assert client.get("/metrics").status_code == 401
            admin = ("admin", (keys / "admin.password").read_text().strip())
            assert client.get("/metrics", auth=admin).status_code == 200
            page = client.get("/console/login")
            assert "Secure" in page.headers["set-cookie"]
            token = page.text.partition('name="token" value="')[2].partition('"')[0]
            answer = client.post("/console/login", data={"token": token, "user": admin[0], "password": admin[1]})
            assert answer.status_code == 303
            assert client.get("/console/settings").status_code == 200


def test_nodes_trust_each_other_and_one_page_asks_for_all_of_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, "--nodes", "2", "--console", "127.0.0.1:0") as ready:
        keys, bootstrap = data / "security", f"127.0.0.1:{ready['port']}"
        assert f"kcat -L -b {bootstrap} -F" in (tmp_path / "log").read_text()
        # Both replicas in sync: the brokers have logged in to each other.
        admin = ["-b", bootstrap, "--command-config", str(keys / "client.properties")]
        ottla("topic", "create", "t", "--replication-factor", "2", "-c", "min.insync.replicas=2", *admin)
        ottla("produce", "t", "-a", "all", *admin, stdin="one\n")
        name, password = "admin", (keys / "admin.password").read_text().strip()
        trusted = ssl.create_default_context(cafile=str(keys / "ca.pem"))
        with httpx.Client(verify=trusted, base_url=ready["http"]) as page:
            assert page.get("/readyz").json() == {"ready": True, "reasons": []}
            for path in ("/", "/metrics"):
                asked = page.get(path)
                assert (asked.status_code, asked.headers["www-authenticate"][:5]) == (401, "Basic")
                assert page.get(path, auth=(name, "wrong")).status_code == 401
            metrics = page.get("/metrics", auth=(name, password)).text.splitlines()
            assert {'ottla_node_up{node="1"} 1', 'ottla_node_up{node="2"} 1'} <= set(metrics)
            overview = page.get("/", auth=(name, password)).text
            assert page.get("/share-group?group=g").status_code == 401
            told = page.get("/share-group?group=g", auth=(name, password))
            assert told.json() == {"group": "g", "partitions": [], "dead_letters": 0}
        # Commands show there what they show the brokers, once they are asked.
        rates = json.loads(ottla("top", "--json", "--interval", "0.01", "--metrics", ready["http"], *admin))
        assert set(rates["nodes"]) == {"1", "2"}
        assert all(node["connections"] >= 1 for node in rates["nodes"].values()), rates
        with httpx.Client(verify=trusted) as browser:
            for node in ready["nodes"]:
                console = f"{node['http']}/console"
                assert f'href="{node["http"]}/"' in overview
                token = browser.get(f"{console}/login").text.partition('name="token" value="')[2].partition('"')[0]
                form = {"token": token, "user": name, "password": password}
                assert browser.post(f"{console}/login", data=form).status_code == 303
            # Logged in at one, and still at the other: a browser sends the cookies of a host to all of its ports.
            assert [browser.get(f"{node['http']}/console/topics").status_code for node in ready["nodes"]] == [200, 200]


def test_without_its_package_a_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for make in (lambda: settings(tmp_path, [], []), lambda: issue(Pair(b"", b""), "alice")):
        with pytest.raises(ConfigError, match=r"needs another package: pip install 'ottla\[security\]'"):
            make()
    assert not list(tmp_path.iterdir())
