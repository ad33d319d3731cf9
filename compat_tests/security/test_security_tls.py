"""Clients that connect with TLS: by a certificate of their own, and with a password."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.brokers.process import HOST
from compat_tests.java.tools import JavaTools
from compat_tests.security import secure_clients
from compat_tests.security.secure_clients import CLIENTS, VALUE
from compat_tests.security.test_security import JAAS, SecureOttla, client

__all__ = ["client"]

pytestmark = pytest.mark.security

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of an authority, of the broker and of alice."""
    pytest.importorskip("cryptography")
    from ottla.security.certificates import issue, make_authority

    folder = tmp_path_factory.mktemp("certificates")
    authority = make_authority("CA of the scenarios")
    broker = issue(authority, "broker", [HOST, "localhost"])
    alice = issue(authority, "CN=alice,O=Ottla")
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "broker.pem").write_bytes(broker.key + broker.certificate)
    (folder / "alice.key").write_bytes(alice.key)
    (folder / "alice.pem").write_bytes(alice.certificate)
    return folder


@pytest.fixture(scope="module", params=["SSL", "SASL_SSL"])
def broker(
    request: pytest.FixtureRequest, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureOttla]:
    settings = {
        "ssl.keystore.location": str(certificates / "broker.pem"),
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
    }
    protocol = str(request.param)
    with SecureOttla(tmp_path_factory.mktemp("tls"), f"{protocol}://{HOST}:0", settings) as broker:
        broker.name = protocol
        yield broker


@pytest.fixture
def known(broker: SecureOttla, certificates: Path) -> dict[str, str]:
    """How to connect to the broker."""
    common = {"security.protocol": broker.name, "ssl.ca.location": str(certificates / "ca.pem")}
    if broker.name == "SSL":
        shown = {"ssl.certificate.location": certificates / "alice.pem", "ssl.key.location": certificates / "alice.key"}
        return common | {name: str(path) for name, path in shown.items()}
    return common | {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin-secret"}


def test_a_client_is_let_in(broker: SecureOttla, client: str, known: dict[str, str]) -> None:
    assert CLIENTS[client](broker.bootstrap, f"t{next(_numbers)}", known) == VALUE


@pytest.mark.java
def test_java(broker: SecureOttla, known: dict[str, str], tmp_path: Path) -> None:
    tools = JavaTools()
    try:
        topic = f"t{next(_numbers)}"
        assert secure_clients.java(tools, tmp_path, broker.bootstrap, topic, known) == VALUE
    finally:
        tools.close()
