"""etcd for tests: Debian's program (package etcd-server), one member or several."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

needs_etcd = pytest.mark.skipif(shutil.which("etcd") is None, reason="needs the program etcd (Debian: etcd-server)")


class Etcd:
    """A cluster of etcd, each member a process."""

    def __init__(
        self, folder: Path, members: int = 1, certificate: Path | None = None, key: Path | None = None
    ) -> None:
        """With a certificate, clients need TLS, and the same certificate for theirs."""
        self._folder = folder
        self._scheme = "http" if certificate is None else "https"
        self._options: list[str] = []
        self._ssl = None
        if certificate is not None and key is not None:
            self._options = ["--cert-file", str(certificate), "--key-file", str(key), "--client-cert-auth"]
            self._options += ["--trusted-ca-file", str(certificate)]
            self._ssl = ssl.create_default_context(cafile=str(certificate))
            self._ssl.load_cert_chain(certificate, key)
        ports = _free_ports(2 * members)
        self.clients, self._peers = ports[:members], ports[members:]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * members
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def hosts(self) -> str:
        """What stands between `etcd://` and the prefix."""
        return ",".join(f"127.0.0.1:{port}" for port in self.clients)

    def start(self) -> None:
        for member in range(len(self.clients)):
            self.start_member(member)
        for member in range(len(self.clients)):
            self.wait_until_ready(member)

    def start_member(self, member: int) -> None:
        cluster = ",".join(f"m{number}=http://127.0.0.1:{port}" for number, port in enumerate(self._peers))
        client, peer = self._url(member), f"http://127.0.0.1:{self._peers[member]}"
        words = ["etcd", "--name", f"m{member}", "--data-dir", str(self._folder / f"m{member}")]
        words += ["--listen-client-urls", client, "--advertise-client-urls", client]
        words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster]
        words += ["--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error", *self._options]
        with (self._folder / f"m{member}.log").open("ab") as log:
            self._processes[member] = subprocess.Popen(words, stdout=log, stderr=log, env=_environment())

    def wait_until_ready(self, member: int) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                url = self._url(member) + "/health"
                with urllib.request.urlopen(url, timeout=2, context=self._ssl) as answer:
                    if b'"true"' in answer.read():
                        return
            except (urllib.error.URLError, OSError):
                pass
            if time.monotonic() > deadline:
                raise AssertionError((self._folder / f"m{member}.log").read_text())
            time.sleep(0.02)

    def kill(self, member: int = 0) -> None:
        process = self._processes[member]
        if process is not None:
            process.kill()
            process.wait()
            self._processes[member] = None

    def pause(self, member: int) -> None:
        process = self._processes[member]
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)

    def resume(self, member: int) -> None:
        """Let a paused one go on."""
        process = self._processes[member]
        assert process is not None
        os.kill(process.pid, signal.SIGCONT)

    def leader(self) -> int:
        """Which member leads."""
        for member in range(len(self.clients)):
            request = urllib.request.Request(self._url(member) + "/v3/maintenance/status", data=b"{}")
            with urllib.request.urlopen(request, timeout=5) as answer:
                status = json.load(answer)
                if status["header"]["member_id"] == status["leader"]:
                    return member
        raise AssertionError("no member leads")

    def _url(self, member: int) -> str:
        return f"{self._scheme}://127.0.0.1:{self.clients[member]}"

    def close(self) -> None:
        for member in range(len(self.clients)):
            self.kill(member)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _environment() -> dict[str, str]:
    """Without what would configure etcd."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
