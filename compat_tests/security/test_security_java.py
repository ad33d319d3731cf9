"""Clients over SASL_SSL: with a token of an issuer's; Kafka Streams, and a share consumer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("joserfc")

from confluent_kafka import Consumer, Producer
from joserfc import jwt
from joserfc.jwk import ECKey

from compat_tests.brokers.process import HOST
from compat_tests.clients.java_client import JavaDriver
from compat_tests.clients.java_share import JavaShareConsumer
from compat_tests.java.tools import JavaTools
from compat_tests.scenarios.test_streams import word_count
from compat_tests.security import secure_clients
from compat_tests.security.secure_clients import CLIENTS, VALUE, RefusedError, for_java
from compat_tests.security.test_security import SecureOttla, run_ottla
from ottla.security.certificates import issue, make_authority

pytestmark = [pytest.mark.security, pytest.mark.java]

TIMEOUT_S: Final = 60.0
KEY: Final = ECKey.generate_key("P-256", {"kid": "1"})
MODULE: Final = "org.apache.kafka.common.security.oauthbearer"


class Served(NamedTuple):
    """A broker, what clients need to know of it, and where alice's token is."""

    broker: SecureOttla
    known: dict[str, str]
    token: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It knows alice, by her password and by tokens that name her."""
    folder = tmp_path_factory.mktemp("secure-java")
    authority = make_authority("CA of the scenarios")
    pair = issue(authority, "broker", [HOST, "localhost"])
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "broker.pem").write_bytes(pair.key + pair.certificate)
    (folder / "keys.json").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    settings = {
        "ssl.keystore.location": str(folder / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": 'PlainLoginModule required user_admin="admin-secret";',
        "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
        "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.allow.unverified.audience": "true",
        "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(folder / "ca.pem")}
    with SecureOttla(folder / "data", f"SASL_SSL://{HOST}:0", settings) as broker:
        admin = tls | {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin-secret"}
        path = folder / "admin.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in admin.items()))
        run_ottla("user", "add", "alice", "-b", broker.bootstrap, "--command-config", str(path), typed="wonder\n")
        known = tls | {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "wonder"}
        token = folder / "token"
        token.write_text(signed())
        yield Served(broker, known, token)


def signed(**changes: object) -> str:
    now = int(time.time())
    return jwt.encode({"alg": "ES256", "kid": "1"}, {"sub": "alice", "iat": now, "exp": now + 600, **changes}, KEY)


@pytest.mark.parametrize("client", ["franz-go", "sarama", "kafka-python", "aiokafka", "kafkajs"])
def test_others_show_a_token(served: Served, client: str) -> None:
    if reason := secure_clients.missing(client):
        pytest.skip(reason)
    known = served.known | {"sasl.mechanism": "OAUTHBEARER", "token": signed()}
    assert CLIENTS[client](served.broker.bootstrap, f"token-{client}", known) == VALUE
    with pytest.raises(RefusedError):
        CLIENTS[client](served.broker.bootstrap, f"token-{client}", known | {"token": signed(exp=1)})


def test_java_shows_a_token(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    url = served.token.as_uri()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{allowed}.urls={url} {allowed}.files={served.token}")
    properties = served.known | {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE}.OAuthBearerLoginModule required;",
    }
    more = {
        "sasl.login.callback.handler.class": f"{MODULE}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    with closing(JavaTools()) as tools:
        bootstrap = served.broker.bootstrap
        assert secure_clients.java(tools, tmp_path, bootstrap, "java-token", properties, more) == VALUE
        served.token.write_text(signed(exp=int(time.time()) + 2, aud="somebody else"))
        with pytest.raises(RefusedError, match="invalid_token"):
            secure_clients.java(tools, tmp_path, bootstrap, "java-token", properties, more)


def test_streams(served: Served, tmp_path: Path) -> None:
    """A word count with exactly_once_v2: transactions, groups and internal topics, all encrypted."""
    settings = {"bootstrap.servers": served.broker.bootstrap, **served.known}
    producer = Producer(settings)
    for line in ("oak ash oak", "ash oak"):
        producer.produce("in", line.encode(), on_delivery=_raise)
    assert producer.flush(TIMEOUT_S) == 0
    java = [f"{name}={value}" for name, value in for_java(served.known).items()]
    with word_count(served.broker.bootstrap, tmp_path, *java):
        reader = Consumer(settings | {"group.id": "reader", "auto.offset.reset": "earliest"})
        with closing(reader):
            reader.subscribe(["out"])
            counts: dict[bytes, list[bytes]] = {}
            deadline = time.monotonic() + TIMEOUT_S
            while sum(map(len, counts.values())) < 5:
                assert time.monotonic() < deadline
                message = reader.poll(1)
                if message is not None and not message.error():
                    counts.setdefault(message.key() or b"", []).append(message.value() or b"")
    assert counts == {b"oak": [b"1", b"2", b"3"], b"ash": [b"1", b"2"]}


def test_a_share_consumer(served: Served) -> None:
    settings = {"bootstrap.servers": served.broker.bootstrap, **served.known}
    with closing(JavaDriver()) as driver:
        member = JavaShareConsumer(driver, served.broker.bootstrap, "sharing", ["shared"], for_java(served.known))
        producer = Producer(settings)
        producer.produce("shared", b"before", on_delivery=_raise)
        assert producer.flush(TIMEOUT_S) == 0
        deadline = time.monotonic() + TIMEOUT_S
        while not (seen := member.poll()):
            # A share group begins at the end.
            producer.produce("shared", VALUE, on_delivery=_raise)
            assert producer.flush(TIMEOUT_S) == 0
            assert time.monotonic() < deadline
        assert seen[0].value in (b"before", VALUE)


def _raise(error: object, _message: object) -> None:
    assert error is None, error
