"""The registry and the REST proxy of a node that asks for certificates: who its visitors are, and what they may do."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

pytest.importorskip("cryptography")

from ottla.client.admin.acls import parse_entry
from ottla.client.client import Client
from ottla.kproto.messages.access.create_acls import CreateAclsRequest
from ottla.registry.http.access import PRINCIPAL
from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster
from ottla.testing.errors import BrokerError
from tests.security.signed import Signed

RULES = "RULE:^CN=([a-z]+),OU=people$/$1/, RULE:^CN=([a-z]+)$/$1/"
ACLS = [
    *(f"alice {operation} topic:subject:orders" for operation in ("read", "write")),
    "bob read topic:subject:orders",
    "alice describe,write,create topic:orders",
]
FORWARDING_ACLS = [
    "alice read,write topic:subject:orders",
    "node cluster-action cluster",
    "node all topic:_schemas",
    "node read group:schema-registry",
]
SCHEMA = {"schema": '"string"'}
VERSIONS = "/subjects/orders/versions"


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return Signed(tmp_path_factory.mktemp("certificates"))


def settings(signed: Signed, client_auth: str) -> dict[str, str]:
    return {
        "ottla.registry.listeners": "127.0.0.1:0",
        "ottla.rest.listeners": "127.0.0.1:0",
        "ottla.http.security.protocol": "SSL",
        "listener.name.http.ssl.keystore.location": signed.server,
        "listener.name.http.ssl.truststore.location": signed.ca,
        "listener.name.http.ssl.client.auth": client_auth,
        "listener.name.http.ssl.principal.mapping.rules": RULES,
        "super.users": "User:node",
    }


@pytest.fixture(scope="module")
def broker(signed: Signed) -> Iterator[Broker]:
    with Broker(config=settings(signed, "required"), users={}, acls=ACLS) as broker:
        yield broker


def ask(
    context: ssl.SSLContext, url: str, method: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body)
    sent = {"content-type": "application/json"} | (headers or {})
    with httpx.Client(verify=context, trust_env=False, timeout=30) as client:
        answer = client.request(method, url, headers=sent, content=data)
    return answer.status_code, answer.json()


class Visitor:
    """Shows a certificate of this distinguished name, or none."""

    def __init__(self, broker: Broker, signed: Signed, name: str | None) -> None:
        assert broker._thread is not None
        self._ready = broker._thread.ready
        self._context = signed.context(None if name is None else signed.file("visitor", name))

    def registry(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        return ask(self._context, f"{self._ready.registry_url}{path}", method, body, headers)

    def rest(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return ask(self._context, f"{self._ready.rest_url}{path}", method, body)


def test_a_certificate_says_who_asks(broker: Broker, signed: Signed) -> None:
    alice = Visitor(broker, signed, "CN=alice,OU=people")
    assert alice.registry("POST", VERSIONS, SCHEMA)[0] == 200
    assert alice.registry("POST", "/subjects/other/versions", SCHEMA) == (
        403,
        {"error_code": 40301, "message": "User:alice may not write subject other"},
    )
    bob = Visitor(broker, signed, "CN=bob")
    assert bob.registry("GET", VERSIONS) == (200, [1])
    assert bob.registry("POST", VERSIONS, SCHEMA)[1]["message"] == "User:bob may not write subject orders"
    assert Visitor(broker, signed, "CN=eve").registry("GET", "/subjects") == (200, [])


def test_the_rest_proxy_knows_it_too(broker: Broker, signed: Signed) -> None:
    record = {"records": [{"value": "eA=="}]}
    status, answer = Visitor(broker, signed, "CN=alice,OU=people").rest("POST", "/topics/orders", record)
    assert (status, answer["offsets"][0]["offset"]) == (200, 0)
    status, answer = Visitor(broker, signed, "CN=bob").rest("POST", "/topics/orders", record)
    assert (status, answer["message"]) == (403, "User:bob may not write orders")
    assert Visitor(broker, signed, "CN=bob").rest("GET", "/topics") == (200, [])


def test_requests_of_one_connection_and_of_others(broker: Broker, signed: Signed) -> None:
    """Connections that are open at the same time do not take each other's names."""
    assert broker._thread is not None
    url = f"{broker._thread.ready.registry_url}{VERSIONS}"
    contexts = [signed.context(signed.file("visitor", f"CN={name}")) for name in ("alice", "eve")]
    alice, eve = (httpx.Client(verify=context, trust_env=False, timeout=30) for context in contexts)
    with alice, eve:
        for _ in range(3):
            assert alice.get(url).status_code == 200
            assert eve.get(url).status_code == 403


def test_without_a_certificate_there_is_no_connection(broker: Broker, signed: Signed) -> None:
    with pytest.raises(httpx.TransportError):
        Visitor(broker, signed, None).registry("GET", "/subjects")


def test_where_no_rule_fits_nobody_is_let_in(broker: Broker, signed: Signed) -> None:
    stranger = Visitor(broker, signed, "CN=alice,O=elsewhere")
    assert stranger.registry("GET", VERSIONS) == (
        401,
        {"error_code": 401, "message": "The certificate is not accepted."},
    )
    assert stranger.rest("GET", "/topics") == (
        401,
        {"error_code": 40101, "message": "The certificate is not accepted."},
    )


def test_only_brokers_ask_on_behalf_of_others(broker: Broker, signed: Signed) -> None:
    """As a registry does that forwards: it shows its own certificate."""
    Visitor(broker, signed, "CN=alice").registry("POST", VERSIONS, SCHEMA)
    node, bob = Visitor(broker, signed, "CN=node"), Visitor(broker, signed, "CN=bob")
    assert node.registry("POST", VERSIONS, SCHEMA, **{PRINCIPAL: "User:alice"})[0] == 200
    assert node.registry("POST", VERSIONS, SCHEMA, **{PRINCIPAL: "User:bob"})[0] == 403
    assert bob.registry("POST", VERSIONS, SCHEMA, **{PRINCIPAL: "User:alice"}) == (
        403,
        {"error_code": 40301, "message": "User:bob may not ask on behalf of User:alice"},
    )


def test_it_may_be_left_out_where_it_is_only_requested(signed: Signed) -> None:
    acls = [*ACLS, "ANONYMOUS read topic:subject:orders"]
    with Broker(config=settings(signed, "requested"), users={}, acls=acls) as broker:
        nobody = Visitor(broker, signed, None)
        assert Visitor(broker, signed, "CN=alice").registry("POST", VERSIONS, SCHEMA)[0] == 200
        assert nobody.registry("GET", VERSIONS) == (200, [1])
        message = "User:ANONYMOUS may not write subject orders"
        assert nobody.registry("POST", VERSIONS, SCHEMA) == (403, {"error_code": 40301, "message": message})


def test_rules_that_cannot_be_read_end_the_start(signed: Signed) -> None:
    config = settings(signed, "required") | {"listener.name.http.ssl.principal.mapping.rules": "RULE:x"}
    with pytest.raises(BrokerError, match=r"ssl\.principal\.mapping\.rules"), Broker(config=config):
        pass


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [it.getsockname()[1] for it in held]


def test_a_registry_that_forwards_says_for_whom(signed: Signed) -> None:
    """The one that writes sees the certificate of the other node, and decides what the client may do."""
    shown = signed.file("node", "CN=node", ["127.0.0.1"])
    stores = {"ssl.keystore.location": shown, "ssl.truststore.location": signed.ca}
    config = {
        **settings(signed, "required"),
        **{f"listener.name.{listener}.{name}": it for listener in ("http", "internal") for name, it in stores.items()},
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.internal.ssl.principal.mapping.rules": RULES,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The test's own client. Nodes may do what brokers and registries need, and have no rights on subjects.
        "super.users": "User:ANONYMOUS",
    }
    ports = free_ports(2)
    urls = [f"https://127.0.0.1:{port}{VERSIONS}" for port in ports]
    own = {number: {"ottla.registry.listeners": f"127.0.0.1:{port}"} for number, port in enumerate(ports, 1)}
    alice, bob = (signed.context(signed.file("visitor", f"CN={name}")) for name in ("alice", "bob"))
    with Cluster(2, config=config, node_config=own) as cluster:
        host, _, port = cluster.address(1).rpartition(":")
        with Client([(host, int(port))]) as client:
            entries = [creation for text in FORWARDING_ACLS for creation in parse_entry(text)]
            assert not any(it.error_code for it in client.call_controller(CreateAclsRequest(creations=entries)).results)
        assert [ask(alice, url, "POST", SCHEMA)[0] for url in urls] == [200, 200]
        message = "User:bob may not write subject orders"
        assert [ask(bob, url, "POST", SCHEMA)[1]["message"] for url in urls] == [message] * 2
