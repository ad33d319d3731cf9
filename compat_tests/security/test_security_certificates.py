"""Certificates that a client must not trust: expired, for another host, by a stranger. Each client says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("cryptography")

from compat_tests.brokers.process import HOST, free_port
from compat_tests.java.tools import JavaTools
from compat_tests.security import secure_clients
from compat_tests.security.secure_clients import CLIENTS, VALUE, RefusedError
from compat_tests.security.test_security import SecureOttla, client
from ottla.security.certificates import issue, make_authority

__all__ = ["client"]

pytestmark = pytest.mark.security

KINDS = ("good", "expired", "wrong-host", "self-signed", "stranger")
UNTRUSTED = ("expired", "wrong-host", "self-signed", "stranger")


class Served(NamedTuple):
    """A broker with a listener for each kind of certificate, and what a client trusts."""

    ports: dict[str, int]
    ca: Path

    def bootstrap(self, kind: str) -> str:
        return f"{HOST}:{self.ports[kind]}"

    @property
    def known(self) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.ca)}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("certificates")
    authority = make_authority("CA of the scenarios")
    pairs = {
        "good": issue(authority, "broker", [HOST]),
        "expired": issue(authority, "broker", [HOST], days=0),
        "wrong-host": issue(authority, "broker", ["broker.example.org"]),
        "self-signed": make_authority(HOST),
        "stranger": issue(make_authority("CA of somebody else"), "broker", [HOST]),
    }
    ca = folder / "ca.pem"
    ca.write_bytes(authority.certificate)
    ports = {kind: free_port() for kind in KINDS}
    names = {kind: kind.upper().replace("-", "_") for kind in KINDS}
    settings = {"listener.security.protocol.map": ",".join(f"{name}:SSL" for name in names.values())}
    for kind, pair in pairs.items():
        path = folder / f"{kind}.pem"
        path.write_bytes(pair.key + pair.certificate)
        settings[f"listener.name.{names[kind].lower()}.ssl.keystore.location"] = str(path)
    settings["inter.broker.listener.name"] = names["good"]
    listeners = ",".join(f"{names[kind]}://{HOST}:{ports[kind]}" for kind in KINDS)
    with SecureOttla(tmp_path_factory.mktemp("broker"), listeners, settings):
        yield Served(ports, ca)


def test_a_good_one_is_trusted(served: Served, client: str) -> None:
    assert CLIENTS[client](served.bootstrap("good"), f"good-{client}", served.known) == VALUE


@pytest.mark.parametrize("kind", UNTRUSTED)
def test_another_one_is_not(served: Served, client: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RefusedError) as refused:
        CLIENTS[client](served.bootstrap(kind), "refused", served.known)
    said = f"{refused.value} {caplog.text}".lower()
    assert "certificate" in said or "ssl" in said or "hostname" in said, said


@pytest.mark.java
def test_java(served: Served, tmp_path: Path) -> None:
    tools = JavaTools()
    try:
        assert secure_clients.java(tools, tmp_path, served.bootstrap("good"), "good-java", served.known) == VALUE
        for kind in UNTRUSTED:
            with pytest.raises(RefusedError, match=r"SslAuthenticationException|SSL handshake failed"):
                secure_clients.java(tools, tmp_path, served.bootstrap(kind), "refused", served.known)
    finally:
        tools.close()
