"""Real clients with tickets of a real KDC: each says by GSSAPI who it is, and is let in as that user."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.java.tools import JavaTools
from compat_tests.security import secure_clients
from compat_tests.security.secure_clients import CLIENTS, VALUE, RefusedError
from compat_tests.security.test_security import SecureOttla
from ottla.settings.sources import STANDARD_AUTHORIZER
from tests import kerberos
from tests.kerberos import HOST, SERVICE, Realm

pytestmark = pytest.mark.security

_numbers = itertools.count(1)
PROPERTIES = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "GSSAPI",
    "sasl.kerberos.service.name": SERVICE,
}


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """It knows the broker, alice, and bob who may do nothing. alice has a ticket."""
    if reason := kerberos.missing():
        pytest.skip(reason)
    with kerberos.realm(tmp_path_factory.mktemp("realm")) as made:
        # Java asks for a ticket for the name that its system has for the address.
        made.keytab(f"{SERVICE}/{HOST}", f"{SERVICE}/{socket.getfqdn(HOST)}")
        made.keytab("bob")
        made.run("kinit", "-k", "-t", str(made.keytab("alice")), "alice")
        yield made


@pytest.fixture(scope="module")
def broker(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureOttla]:
    keytab = realm.folder / f"{SERVICE}-{HOST}.keytab"
    settings = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="{keytab}";'
        ),
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAIN:PLAINTEXT",
        "inter.broker.listener.name": "PLAIN",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:alice;User:ANONYMOUS",
    }
    listeners = f"SASL_PLAINTEXT://{HOST}:0,PLAIN://{HOST}:0"
    with SecureOttla(tmp_path_factory.mktemp("kerberos"), listeners, settings) as process:
        yield process


@pytest.mark.parametrize(
    "client", [pytest.param("kcat", marks=pytest.mark.kcat), "kafka-python", "aiokafka", "sarama", "franz-go"]
)
def test_who_has_a_ticket_is_let_in(broker: SecureOttla, realm: Realm, client: str) -> None:
    if reason := secure_clients.missing(client):
        pytest.skip(reason)
    keytab = {"sasl.kerberos.keytab": f"{realm.folder}/alice.keytab", "sasl.kerberos.principal": "alice"}
    in_go = keytab | {"sasl.kerberos.realm": kerberos.REALM}
    own = {"kcat": keytab, "sarama": in_go, "franz-go": in_go}
    properties = PROPERTIES | own.get(client, {})
    assert CLIENTS[client](broker.bootstrap, f"t{next(_numbers)}", properties) == VALUE


@pytest.mark.java
def test_java(broker: SecureOttla, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.environment['KRB5_CONFIG']}")

    def properties(user: str) -> dict[str, str]:
        module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        jaas = f'{module} keyTab="{realm.folder}/{user}.keytab" principal="{user}@{kerberos.REALM}";'
        return PROPERTIES | {"sasl.jaas.config": jaas}

    tools = JavaTools()
    try:
        assert (
            secure_clients.java(tools, tmp_path, broker.bootstrap, f"t{next(_numbers)}", properties("alice")) == VALUE
        )
        with pytest.raises(RefusedError, match="TopicAuthorizationException"):
            secure_clients.java(tools, tmp_path, broker.bootstrap, "refused", properties("bob"))
    finally:
        tools.close()
