"""What packaging/ holds: systemd's unit, the container's files, the settings; and the wheel in an empty environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.settings.config import BROKER_SETTINGS

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "systemd" / "ottla.service"
DOCKERFILE = PACKAGING / "docker" / "Dockerfile"
OTTLA = [sys.executable, "-m", "ottla.cli"]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which a service manager listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(120)
        yield listening


def test_the_service_manager_is_told_when_it_serves_and_when_it_stops(manager: socket.socket, tmp_path: Path) -> None:
    environment = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    command = [*OTTLA, "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ready, status = manager.recv(4096).decode().split("\n")
    assert ready == "READY=1"
    assert re.fullmatch(r"STATUS=serving on 127\.0\.0\.1:\d+", status)
    process.send_signal(signal.SIGTERM)
    assert manager.recv(4096) == b"STOPPING=1"
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "ottla.service"
    unit.write_text(UNIT.read_text().replace("/opt/ottla/bin/ottla", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "ottla.service" not in done.stderr + done.stdout


def test_the_configuration_is_valid_and_of_debians_paths() -> None:
    settings = tomllib.loads((PACKAGING / "ottla.toml").read_text())
    assert settings["log.dirs"] == "/var/lib/ottla"
    flags = ["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "log.dirs=/tmp", "--json"]
    command = [*OTTLA, "doctor", "--config", str(PACKAGING / "ottla.toml"), *flags]
    findings = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert findings[0]["subject"] == "settings"
    assert findings[0]["level"] == "ok"
    assert "StateDirectory=ottla\n" in UNIT.read_text()
    assert "/etc/ottla/ottla.toml" in UNIT.read_text()


def test_the_container_runs_as_nobody_special_and_copies_what_is_there() -> None:
    text = DOCKERFILE.read_text()
    assert re.search(r"^USER 9092:9092$", text, re.MULTILINE)
    assert "--uid 9092" in text
    kept = re.findall(r"^!(\S+)$", (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert all((ROOT / name).exists() for name in kept)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(packages["only-include"]) <= set(kept)


def test_the_image_stands_on_one_base_that_can_be_replaced() -> None:
    text = DOCKERFILE.read_text()
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.\d+-slim$", text, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${PYTHON_IMAGE}"}


def test_the_containers_http_port_can_be_reached_by_probes_and_metrics() -> None:
    """A kubelet asks the pod's own address, which loopback would not answer."""
    text = DOCKERFILE.read_text()
    assert re.search(r"^ *(ENV +)?OTTLA_HTTP_LISTEN=0\.0\.0\.0:9644", text, re.MULTILINE)
    assert re.search(r"^EXPOSE .*\b9644\b", text, re.MULTILINE)


@pytest.mark.parametrize("path", sorted(PACKAGING.rglob("*.yaml")), ids=lambda path: str(path.relative_to(PACKAGING)))
def test_variables_name_settings_and_probes_ask_what_is_served(path: Path) -> None:
    text = path.read_text()
    known = {"OTTLA_" + name.replace(".", "_").upper().removeprefix("OTTLA_") for name in BROKER_SETTINGS}
    assert set(re.findall(r"^ *(?:- name: )?(OTTLA_[A-Z_]+)\b", text, re.MULTILINE)) <= known
    assert set(re.findall(r"httpGet: \{path: (\S+),", text)) <= {"/healthz", "/readyz"}


def test_the_chart_is_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f'appVersion: "{version}"' in (PACKAGING / "helm" / "ottla" / "Chart.yaml").read_text()


@pytest.fixture
def entry_point() -> list[str]:
    """The container's command with its settings."""
    found = re.search(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    assert found is not None
    return list(json.loads(found[1]))


def test_the_wheel_serves_in_an_empty_environment_as_the_container_starts_it(
    entry_point: list[str], tmp_path: Path
) -> None:
    """Its dependencies are those of this environment; nothing else of it is seen, and no folder but the data's is
    written to."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(tmp_path / "venv/bin/python")]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", str(wheel)], check=True, capture_output=True)
    import trio

    theirs = Path(trio.__file__).parents[1]
    for package in theirs.iterdir():
        if not package.name.startswith(("ottla", "_editable", "_ottla", "__pycache__")) and package.suffix != ".pth":
            target = site / package.name
            if not target.exists():
                target.symlink_to(package)

    program = tmp_path / "venv" / "bin" / entry_point[0]
    environment = {
        "OTTLA_LOG_DIRS": str(tmp_path / "data"),
        "OTTLA_HTTP_LISTEN": "127.0.0.1:0",
        "PATH": "/usr/bin:/bin",
        # Kubernetes says where a service is that is called ottla.
        "OTTLA_SERVICE_HOST": "10.0.0.7",
        "OTTLA_PORT": "tcp://10.0.0.7:9092",
        "OTTLA_PORT_9092_TCP_ADDR": "10.0.0.7",
    }
    arguments = [word.replace("0.0.0.0:9092", "127.0.0.1:0") for word in entry_point[1:]]
    process = subprocess.Popen(
        [str(program), *arguments], env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    with urllib.request.urlopen(f"{ready['http']}/readyz", timeout=120) as answer:
        assert answer.status == 200
    address = ["-b", f"127.0.0.1:{ready['port']}"]
    subprocess.run([str(program), "produce", "t", *address], input=b"a\nb\n", check=True, env=environment)
    done = subprocess.run([str(program), "consume", "t", *address], capture_output=True, check=True, env=environment)
    assert done.stdout == b"a\nb\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 0
