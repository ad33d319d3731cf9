"""The registry of a node with users: who is let in, and what ACLs let them do."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from ottla.testing.broker import Broker

OPENER = build_opener(ProxyHandler({}))
USERS = {"ann": "a-secret", "bob": "b-secret", "eve": "e-secret"}
ACLS = [
    *(f"ann {operation} topic:subject:orders-*" for operation in ("read", "write", "delete")),
    "bob read topic:subject:orders-value",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    config = {
        "ottla.registry.listeners": "127.0.0.1:0",
        "ottla.http.security.protocol": "SASL_PLAINTEXT",
        "listener.name.http.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "listener.name.http.connection.failed.authentication.delay.ms": "0",
    }
    with Broker(config=config, users=USERS, acls=ACLS) as broker:
        yield broker


def ask(broker: Broker, user: str | None, method: str, path: str, body: object = None) -> tuple[int, Any]:
    assert broker._thread is not None
    url = broker._thread.ready.registry_url
    headers = {"Content-Type": "application/json"}
    if user is not None:
        password = USERS.get(user, "wrong")
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{url}{path}", data=data, method=method, headers=headers)
    try:
        with OPENER.open(request, timeout=30) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_only_users_are_let_in(broker: Broker) -> None:
    assert ask(broker, None, "GET", "/subjects") == (401, {"error_code": 401, "message": "Unauthorized"})
    assert ask(broker, "nobody", "GET", "/subjects")[0] == 401
    assert ask(broker, "eve", "GET", "/subjects") == (200, [])


def test_acls_protect_subjects(broker: Broker) -> None:
    schema = {"schema": '"string"'}
    assert ask(broker, "ann", "POST", "/subjects/orders-value/versions", schema)[1]["id"] == 1
    assert ask(broker, "ann", "POST", "/subjects/others/versions", schema)[0] == 403
    status, answer = ask(broker, "bob", "POST", "/subjects/orders-value/versions", schema)
    assert (status, answer) == (403, {"error_code": 40301, "message": "User:bob may not write subject orders-value"})
    assert ask(broker, "bob", "GET", "/subjects/orders-value/versions") == (200, [1])
    assert ask(broker, "bob", "GET", "/schemas/ids/1")[0] == 200
    assert ask(broker, "bob", "DELETE", "/subjects/orders-value")[0] == 403
    assert ask(broker, "bob", "PUT", "/config", {"compatibility": "NONE"})[0] == 403
    assert ask(broker, "eve", "GET", "/schemas/ids/1")[0] == 403
    assert ask(broker, "eve", "GET", "/subjects") == (200, [])
    assert ask(broker, "bob", "GET", "/subjects") == (200, ["orders-value"])
    assert ask(broker, "ann", "DELETE", "/subjects/orders-value") == (200, [1])


TOKENS = {
    "ottla.registry.listeners": "127.0.0.1:0",
    "ottla.http.security.protocol": "SASL_PLAINTEXT",
    "listener.name.http.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "listener.name.http.oauthbearer.sasl.server.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    ),
    "listener.name.http.connection.failed.authentication.delay.ms": "0",
}


def token(name: str, valid_seconds: float) -> str:
    """An unsigned one, which the broker of this test takes."""
    parts = {"alg": "none"}, {"sub": name, "exp": time.time() + valid_seconds, "iat": time.time() - 1}
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join((*encoded, ""))


def test_tokens_as_on_a_listener() -> None:
    with Broker(config=TOKENS, users=USERS, acls=ACLS) as broker:
        assert broker._thread is not None
        url = f"{broker._thread.ready.registry_url}/subjects/orders-value/versions"

        def register(shown: str) -> tuple[int, Any]:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {shown}"}
            request = Request(url, data=json.dumps({"schema": '"int"'}).encode(), headers=headers)
            try:
                with OPENER.open(request, timeout=30) as response:
                    return response.status, json.load(response)
            except HTTPError as error:
                with error:
                    return error.code, (json.load(error)["message"], error.headers["WWW-Authenticate"])

        assert register(token("ann", 60))[0] == 200
        # Remembered for some minutes, but no longer than it is good.
        assert register(token("ann", 60))[0] == 200
        assert register(token("bob", 60)) == (403, ("User:bob may not write subject orders-value", None))
        for wrong in (token("ann", -1), "x", "", token("ann", 60) + "x"):
            assert register(wrong) == (401, ("The token is not accepted.", 'Bearer realm="Ottla"'))


def test_a_port_that_takes_no_tokens_asks_for_a_password(broker: Broker) -> None:
    assert broker._thread is not None
    request = Request(
        f"{broker._thread.ready.registry_url}/subjects", headers={"Authorization": f"Bearer {token('ann', 60)}"}
    )
    with pytest.raises(HTTPError) as raised:
        OPENER.open(request, timeout=30)
    with raised.value as error:
        assert (error.code, error.headers["WWW-Authenticate"]) == (401, 'Basic realm="Ottla", charset="UTF-8"')
