"""Clients that show a token: librdkafka's and our own, and what both are told when it is not good."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("joserfc")

from confluent_kafka import KafkaError, Producer
from joserfc import jwt
from joserfc.jwk import ECKey

from ottla.client.client import Client
from ottla.client.errors import AuthenticationError, SecurityConfigError
from ottla.client.security import from_properties
from ottla.testing import Broker

KEY = ECKey.generate_key("P-256", {"kid": "1"})
STRANGER = ECKey.generate_key("P-256", {"kid": "1"})


def token(key: Any = KEY, **changes: Any) -> str:
    now = int(time.time())
    claims = {"sub": "alice", "iat": now, "exp": now + 600, "aud": "kafka", **changes}
    return jwt.encode({"alg": "ES256", "kid": "1"}, claims, key)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("issuer") / "keys.json"
    keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    prefix = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer"
    config = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        f"{prefix}.jwks.endpoint.url": keys.as_uri(),
        f"{prefix}.expected.audience": "kafka",
        f"{prefix}.allow.unverified.issuer": "true",
    }
    with Broker(config=config, users={}, acls=["alice all topic:orders"]) as broker:
        yield broker


def send(broker: Broker, shown: str) -> tuple[list[KafkaError], list[KafkaError | None]]:
    """What a producer of librdkafka's is told, of itself and of its record."""
    errors: list[KafkaError] = []
    delivered: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (shown, time.time() + 300, "alice", {}),
            "error_cb": errors.append,
            "message.timeout.ms": 3000,
            "log_level": 0,
        }
    )
    producer.produce("orders", b"x", on_delivery=lambda error, _: delivered.append(error))
    deadline = time.monotonic() + 120
    while not (delivered or errors) and time.monotonic() < deadline:
        producer.poll(0.05)
    producer.purge()
    producer.flush(10)
    return errors, delivered


def test_librdkafka_is_let_in_as_whom_its_token_names(broker: Broker) -> None:
    broker.create_topic("orders")
    errors, delivered = send(broker, token())
    assert (errors, delivered) == ([], [None])
    (record,) = broker.records("orders")
    assert record.value == b"x"
    _, delivered = send(broker, token(sub="bob"))
    assert delivered[0] is not None
    assert delivered[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_librdkafka_says_that_its_token_is_refused(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    shown = token(STRANGER)
    with caplog.at_level(logging.INFO):
        errors, _ = send(broker, shown)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()
    assert "BadSignatureError" in caplog.text  # the operator is told why
    assert shown not in caplog.text
    assert shown.rpartition(".")[2] not in caplog.text


def our_own(broker: Broker, path: Path) -> int:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
    }
    with Client([("127.0.0.1", broker.port)], 10, security=from_properties(properties)) as client:
        return len(client.metadata([]).brokers)


def test_our_own_client_reads_its_token_from_a_file(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token() + "\n")
    assert our_own(broker, path) == 1
    path.write_text(token(exp=int(time.time()) - 100))
    with pytest.raises(AuthenticationError, match="invalid_token"):
        our_own(broker, path)
    path.unlink()
    with pytest.raises(SecurityConfigError, match="cannot be read"):
        our_own(broker, path)
    with pytest.raises(SecurityConfigError, match="needs a file with the token"):
        from_properties({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"})
