"""`ottla doctor`."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli import main
from ottla.cli.doctor import http as doctor_http
from ottla.cli.doctor import machine as doctor_machine
from ottla.cli.doctor import network as doctor_network
from ottla.cli.doctor.finding import Finding
from ottla.client.security import from_properties
from ottla.security.certificates import issue, make_authority
from ottla.settings.sources import load
from ottla.storage.disk import RealDisk
from ottla.storage.format.sealed_index import build_sealed_index
from ottla.storage.format.segment_header import build_segment_header
from ottla.storage.upkeep.scrub_state import ScrubFinding, ScrubState, write_scrub_state
from ottla.testing import Broker
from tests.cli.conftest import Broker as Process

Examine = Callable[..., dict[str, dict[str, str]]]


@pytest.fixture
def examine(broker: Any, tmp_path: Path) -> Examine:
    """What it finds, by subject."""

    def run(*flags: str, code: int = 0) -> dict[str, dict[str, str]]:
        where = () if "--data-dir" in flags else ("--data-dir", str(tmp_path / "other"))
        done = broker.run("doctor", *where, *flags, "--json", check=False)
        assert done.returncode == code, done
        return {finding["subject"]: finding for finding in json.loads(done.stdout)}

    return run


def test_a_sound_machine(examine: Examine, broker: Any) -> None:
    found = examine("--port", "0")
    assert {it["level"] for it in found.values()} <= {"ok", "warn"}
    assert {"settings", "data folder", "file system", "disk space", "sync", "open files", "memory"} < set(found)
    lines = broker.run("doctor", "--port", "0").stdout.decode().splitlines()
    assert lines[0] == "ok    settings: valid"


def test_beside_a_running_broker_it_makes_a_round_trip(examine: Examine, broker: Any) -> None:
    found = examine("--listen", broker.address)
    assert found[f"listener {broker.address}"]["message"] == "a broker answers there"
    assert found[f"reaching {broker.address}"]["level"] == "ok"
    assert broker.address in found[f"reaching {broker.address}"]["message"]


def test_beside_a_broker_that_asks_who_is_there() -> None:
    pytest.importorskip("cryptography")
    with Broker(users={"alice": "wonder"}, tls=True) as broker:
        config = load(environment={}, flags={"listeners": f"SASL_SSL://{broker.bootstrap}", "log.dirs": "/nowhere"})

        def look(properties: dict[str, str]) -> tuple[Finding, Finding]:
            found = {it.subject: it for it in doctor_network.examine(config, from_properties(properties))}
            return found[f"listener {broker.bootstrap}"], found[f"reaching {broker.bootstrap}"]

        listener, reaching = look({})
        assert listener.message == "a broker answers there"
        assert "--command-config" in reaching.advice
        assert look(broker.java_config())[1].level == "ok"
        reaching = look(broker.client_config() | {"sasl.password": "wander"})[1]
        assert reaching.level == "fail"
        assert "the user, the password" in reaching.advice


def test_what_is_wrong_is_named_with_what_to_do(examine: Examine, tmp_path: Path) -> None:
    found = examine("--set", "num.partitons=3", code=1)
    assert "Did you mean num.partitions?" in found["settings"]["message"]

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        found = examine("--listen", address, code=1)
    assert found[f"listener {address}"]["level"] == "fail"
    assert "--port" in found[f"listener {address}"]["advice"]

    found = examine("--listen", "127.0.0.1:0", "--advertise", "no.such.host.invalid:9092", code=1)
    assert found["advertised no.such.host.invalid:9092"]["level"] == "fail"

    found = examine("--listen", "0.0.0.0:0", "--advertise", "127.0.0.1")
    assert "connect to themselves" in found["advertised 127.0.0.1"]["message"]

    (tmp_path / "file").write_text("")
    found = examine("--port", "0", "--data-dir", str(tmp_path / "file"), code=1)
    assert found["data folder"]["level"] == "fail"
    found = examine("--port", "0", "--data-dir", "/proc/nowhere", code=1)
    assert "--data-dir" in found["sync"]["advice"]


NEEDS_KEYS = {"listeners": "SASL_SSL://127.0.0.1:0", "inter.broker.listener.name": "SASL_SSL"}


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (NEEDS_KEYS | {"ssl.keystore.location": "/nowhere/k.pem"}, "cannot be read"),
        (NEEDS_KEYS, "needs a certificate"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "NTLM"}, "sasl.enabled.mechanisms"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI"),
        ({"listeners": "A://127.0.0.1:0"}, "listener.security.protocol.map"),
        ({"ottla.http.listen": "127.0.0.1:x"}, "ottla.http.listen"),
        ({"ottla.registry.listeners": "127.0.0.1:x"}, "ottla.registry.listeners"),
        ({"ottla.http.listen": "127.0.0.1:0", "ottla.http.security.protocol": "SSL"}, "needs a certificate"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot be advertised"),
    ],
)
def test_what_a_start_refuses_fails_by_the_same_words(
    settings: dict[str, str], refused: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "ottla.security.kerberos", None)  # as if its package were not installed
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0"} | settings
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    flags += ["--data-dir", str(tmp_path / "data")]
    assert main(["doctor", "--json", *flags]) == 1
    (found,) = [it for it in json.loads(capsys.readouterr().out) if it["level"] == "fail"]
    assert refused in found["message"]
    assert main(["serve", *flags]) == 1
    assert found["message"] in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_folder_that_cannot_be_used_fails(examine: Examine, tmp_path: Path) -> None:
    folder = tmp_path / "used"
    flags = ("--port", "0", "--data-dir", str(folder))
    running = Process(folder)
    found = examine(*flags, code=1)
    assert "is in use by process" in found["data folder"]["message"]
    # The same folder, and where its broker listens: all is well.
    found = examine("--listen", running.address, "--data-dir", str(folder))
    assert found["data folder"]["level"] == "ok"
    running.run("produce", "t", stdin=b"a\n")
    assert running.stop() == 0
    assert examine(*flags)["data folder"]["level"] == "ok"
    (folder / "node-2").mkdir()
    (folder / "cluster.sqlite").rename(tmp_path / "elsewhere")
    assert "node 2" in examine(*flags, code=1)["settings"]["message"]
    found = examine(*flags, "--set", "node.id=1", code=1)
    assert "cluster.sqlite is missing" in found["data folder"]["message"]


def test_a_port_that_this_user_may_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    config = load(environment={}, flags={"listeners": "PLAINTEXT://127.0.0.1:80", "ottla.http.listen": "127.0.0.1:81"})
    found = {it.subject: it for it in [*doctor_network.examine(config), *doctor_http.examine(config)]}
    for subject, flag in (("listener 127.0.0.1:80", "--port"), ("--http 127.0.0.1:81", "--http")):
        assert found[subject].message == "Permission denied"
        assert f"from 1024 with {flag}" in found[subject].advice


def test_a_broker_with_other_settings_is_not_taken_for_another_program() -> None:
    pytest.importorskip("cryptography")
    with Broker(tls=True) as encrypted, Broker() as plain:

        def look(protocol: str, address: str) -> Finding:
            flags = {"listeners": f"{protocol}://{address}", "inter.broker.listener.name": protocol}
            found = {it.subject: it for it in doctor_network.examine(load(environment={}, flags=flags))}
            return found[f"listener {address}"]

        for finding in (look("PLAINTEXT", encrypted.bootstrap), look("SSL", plain.bootstrap)):
            assert finding.level == "fail"
            assert finding.advice.startswith("give the flags and the file that the broker was started with")
        assert look("PLAINTEXT", plain.bootstrap).level == look("SSL", encrypted.bootstrap).level == "ok"


def test_a_broker_that_asks_for_certificates(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    authority = make_authority("CA")
    pair = issue(authority, "broker", ["127.0.0.1"])
    (tmp_path / "broker.pem").write_bytes(pair.key + pair.certificate)
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    flags = {
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.client.auth": "required",
    }
    words = [word for name, value in flags.items() for word in ("--set", f"{name}={value}")]
    running = Process(tmp_path / "data", *words, "--set", "listeners=SSL://127.0.0.1:0", port=False)
    found = {
        it.subject: it
        for it in doctor_network.examine(load(environment={}, flags=flags | {"listeners": f"SSL://{running.address}"}))
    }
    assert running.stop() == 0
    assert found[f"listener {running.address}"].message == "a broker answers there, and asks for a certificate"


def test_before_the_first_start_with_keys(examine: Examine, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    found = examine("--secure", "--port", "0")
    assert found["keys"]["level"] == "ok"
    assert "settings" in found
    assert not (tmp_path / "other").exists()


def test_http_ports_are_tried(examine: Examine) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        found = examine("--port", "0", "--http", address, "--registry", address, code=1)
    assert found[f"--http {address}"]["advice"] == "choose another address with --http"
    assert found[f"--registry {address}"]["advice"] == "choose another address with --registry"


def test_few_files_little_memory_and_a_wrong_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    found = doctor_machine.files(2147483647)
    assert (found.level, found.subject) == ("warn", "open files")
    assert "ulimit -n" in found.advice
    assert doctor_machine.memory(1 << 60).level == "warn"
    assert doctor_machine.memory(0).level == "ok"
    assert doctor_machine.clock(str(tmp_path), time.time()).level == "ok"
    assert doctor_machine.clock(str(tmp_path), 0.0).level == "fail"


def test_a_disk_in_memory_is_a_warning() -> None:
    findings: list[Finding] = list(doctor_machine.data_folder("/dev/shm/ottla"))
    assert [it.level for it in findings if it.subject == "file system"] == ["warn"]


def test_a_full_disk_and_a_read_only_one_are_failures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def found() -> dict[str, Finding]:
        return {it.subject: it for it in doctor_machine.data_folder(str(tmp_path))}

    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000, total=10**12))
    space = found()["disk space"]
    assert (space.level, space.message) == ("fail", "1.0 kB of 1.0 TB are free")
    assert "retention.bytes" in space.advice

    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not be written to by this user" in found()["data folder"].message
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert "is on a read-only file system" in found()["data folder"].message


def test_it_warns_of_listening_beyond_this_machine(examine: Examine) -> None:
    found = examine("--listen", "0.0.0.0:0", "--advertise", "127.0.0.1")
    assert found["access 0.0.0.0:0"]["level"] == "warn"
    assert "no authentication" in found["access 0.0.0.0:0"]["message"]
    assert not [subject for subject in examine("--port", "0") if subject.startswith("access")]


def test_lost_data_files_are_named(tmp_path: Path) -> None:
    store = tmp_path / "node-1" / "topic.AAAAAAAAAAAAAAAAAAAAAA" / "0"
    store.mkdir(parents=True)
    for position in (0, 164):
        header = build_segment_header(0, position, 0, 0)
        (store / f"{position:020d}.data").write_bytes(header + bytes(100))
    pieces = build_sealed_index(0, 164, [])
    (store / f"{0:020d}.index").write_bytes(b"".join(pieces))
    assert not [it for it in doctor_machine.data_folder(str(tmp_path)) if it.subject == "data files"]
    (store / f"{0:020d}.data").write_bytes(bytes(80))
    (store / f"{0:020d}.data.cut-7").write_bytes(b"")
    found = [it for it in doctor_machine.data_folder(str(tmp_path)) if it.subject == "data files"]
    assert [it.level for it in found] == ["fail", "fail"]
    assert "the last 84 bytes are lost" in found[0].message
    (store / f"{0:020d}.data").unlink()
    found = [it for it in doctor_machine.data_folder(str(tmp_path)) if it.subject == "data files"]
    assert "is lost" in found[0].message


def test_what_the_broker_found_in_its_files_is_named(tmp_path: Path) -> None:
    node = tmp_path / "node-1"
    node.mkdir()
    (node / "1.data").touch()
    kept, gone = (
        ScrubFinding("1.data", 7, "1.data is damaged at byte 7"),
        ScrubFinding("2.data", 7, "of a file that is gone"),
    )
    write_scrub_state(RealDisk(), str(node), ScrubState(1000, (kept, gone)))
    found = [it for it in doctor_machine.data_folder(str(tmp_path)) if it.subject == "damaged files"]
    assert [(it.level, it.message) for it in found] == [("fail", "node-1: 1.data is damaged at byte 7")]
    write_scrub_state(RealDisk(), str(node), ScrubState(1000))
    (it,) = [it for it in doctor_machine.data_folder(str(tmp_path)) if it.subject == "damaged files"]
    assert (it.level, it.message) == ("ok", "node-1: none when all were read, at 1970-01-01 00:00+00:00")


def test_it_asks_a_running_broker_whether_it_is_ready(examine: Examine, tmp_path: Path) -> None:
    running = Process(tmp_path / "asked", "--http", "127.0.0.1:0")
    address = running.ready["http"].removeprefix("http://").rstrip("/")
    found = examine("--port", "0", "--set", f"ottla.http.listen={address}")
    assert running.stop() == 0
    assert found["readiness"]["level"] == "ok"
    assert "readiness" not in examine("--port", "0", "--set", f"ottla.http.listen={address}")


def test_a_broker_that_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"ready": False, "reasons": ["the task x fails and is begun again: y"], "degraded": ["the task z failed"]}
    monkeypatch.setattr(doctor_network, "port", lambda *_: None)
    monkeypatch.setattr(doctor_http, "_ask", lambda *_: answer)
    found = list(doctor_http.examine(load(environment={}, flags={"ottla.http.listen": "127.0.0.1:1"})))
    assert [(it.level, it.subject) for it in found] == [("warn", "readiness"), ("warn", "health")]
    assert "the task x fails" in found[0].message
