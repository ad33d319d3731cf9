"""The HTTP port that encrypts and asks who is there: metrics, health, and pauses for who guesses."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from ottla.client.admin.users import credential
from ottla.metadata.acls import Acl, AclOperation, AclPattern, AclPermission, AclResource
from ottla.metadata.scram_changes import ScramUpsertion
from ottla.security.tls import ReloadedTls
from ottla.server.http import login
from ottla.server.http.lockout import ADDRESS, USER, LockedOutError, Lockout
from ottla.server.http.login import _network
from ottla.server.http.peer import VISITOR_HEADER
from ottla.server.http.server import HttpServer
from ottla.server.network.listener import ListenAddress
from ottla.settings.config import BrokerConfig, ConfigError

Serve = Callable[..., Any]

HTTP = {
    "ottla.http.listen": "127.0.0.1:0",
    "ottla.http.security.protocol": "SASL_PLAINTEXT",
    "listener.name.http.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="adm\\"in" user_bob="builder";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": "0",
}


async def status(url: str, path: str, *login: str, **headers: str) -> int:
    async with httpx.AsyncClient(auth=login or None, headers=headers) as client:  # type: ignore[arg-type]
        return (await client.get(url + path)).status_code


async def add_user(broker: Any, name: str, password: str) -> None:
    made = credential(name, password, "SCRAM-SHA-256")
    upsertion = ScramUpsertion(name, made.mechanism, made.iterations, made.salt, made.salted_password)
    assert await broker.controller.alter_scram_credentials([], [upsertion]) == {name: None}


async def test_metrics_are_for_users_who_may_describe_the_cluster(serve_node: Serve) -> None:
    async with serve_node(HTTP) as node:
        url = node.http_url
        assert await status(url, "/metrics") == 401
        assert await status(url, "/metrics", "admin", "wrong") == 401
        assert await status(url, "/metrics", "nobody", "wrong") == 401
        assert await status(url, "/metrics", "admin", 'adm"in') == 200
        assert await status(url, "/metrics", "bob", "builder") == 403
        everywhere = ("kafka-cluster", AclPattern.LITERAL, "User:bob", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
        await node.broker.controller.create_acls([Acl(AclResource.CLUSTER, *everywhere)])
        assert await status(url, "/metrics", "bob", "builder") == 200
        # Users of the metadata come by their passwords for PLAIN and SCRAM.
        await add_user(node.broker, "carol", "secret")
        assert await status(url, "/metrics", "carol", "secret") == 403
        assert await status(url, "/metrics", authorization="Basic %%%") == 401


async def test_only_the_page_of_all_nodes_may_say_whom_it_asks_for(serve_node: Serve, tmp_path: Path) -> None:
    path = str(tmp_path / "1")
    await trio.Path(path).touch()  # as a process that was killed has left it behind
    from_there = ("kafka-cluster", AclPattern.LITERAL, "User:bob", "10.1.2.3", AclOperation.DESCRIBE)
    async with serve_node(HTTP) as node, trio.open_nursery() as nursery:
        await node.broker.controller.create_acls([Acl(AclResource.CLUSTER, *from_there, AclPermission.ALLOW)])
        nursery.start_soon(HttpServer(ListenAddress("HTTP", "127.0.0.1", 0), page_socket=path).run, node.broker)
        bob = ("bob", "builder")
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=path), base_url="http://localhost") as page:
            for host, code in (("10.1.2.3", 200), ("10.1.2.4", 403)):
                assert (await page.get("/metrics", headers={VISITOR_HEADER: host}, auth=bob)).status_code == code
            assert (await page.get("/metrics", auth=bob)).status_code == 403
        assert await status(node.http_url, "/metrics", "bob", "builder", **{VISITOR_HEADER: "10.1.2.3"}) == 403
        nursery.cancel_scope.cancel()


async def test_health_is_for_all_and_names_nothing(serve_node: Serve) -> None:
    async with serve_node(HTTP) as node, httpx.AsyncClient() as client:
        assert (await client.get(node.http_url + "/healthz")).text == "ok\n"
        assert (await client.get(node.http_url + "/readyz")).json() == {"ready": True}


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
async def test_metrics_by_a_token(serve_node: Serve, protocol: str) -> None:
    settings = HTTP | {"ottla.http.security.protocol": protocol, "ottla.http.metrics.token": "s3cret"}
    async with serve_node(settings) as node:
        assert await status(node.http_url, "/metrics", authorization="Bearer s3cret") == 200
        assert await status(node.http_url, "/metrics", authorization="bearer  s3cret") == 200
        assert await status(node.http_url, "/metrics", authorization="Bearer s3cre") == 401
        assert await status(node.http_url, "/metrics", authorization="s3cret") == 401
        assert await status(node.http_url, "/metrics") == 401


async def test_who_guesses_waits_longer_and_longer(serve_node: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "Lockout", lambda _: Lockout(Clock()))  # no pause ends meanwhile
    async with serve_node(HTTP) as node:
        answers = [await status(node.http_url, "/metrics", "admin", f"{number}") for number in range(7)]
        assert answers == [401] * 5 + [429] * 2
        # The right password waits as well, or trying it would tell.
        assert await status(node.http_url, "/metrics", "admin", 'adm"in') == 429
        assert await status(node.http_url, "/metrics", "bob", "builder") == 403


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_pauses_double_up_to_a_bound_and_end_with_the_right_password() -> None:
    clock = Clock()
    lockout = Lockout(clock)
    keys = [(USER, "alice"), (ADDRESS, "192.0.2.1")]
    pauses = []
    for _ in range(14):
        try:
            lockout.begin(keys)
        except LockedOutError as error:
            pauses.append(error.seconds)
            clock.now += error.seconds
            lockout.begin(keys)
    assert pauses[:5] == [1, 2, 4, 8, 16]
    assert max(pauses) == 30
    lockout.succeeded(keys)
    for _ in range(5):
        lockout.begin(keys)
    with pytest.raises(LockedOutError):
        lockout.begin(keys)


def test_an_address_waits_whomever_it_tries() -> None:
    clock = Clock()
    lockout = Lockout(clock)
    for number in range(10):
        lockout.begin([(ADDRESS, "192.0.2.1"), (USER, f"user-{number}")])
    with pytest.raises(LockedOutError):
        lockout.begin([(ADDRESS, "192.0.2.1"), (USER, "another")])
    lockout.begin([(ADDRESS, "192.0.2.2"), (USER, "another")])
    clock.now += 3601
    lockout.begin([(ADDRESS, "192.0.2.1"), (USER, "another")])


def test_what_is_remembered_of_guesses_is_bounded() -> None:
    lockout = Lockout(Clock())
    for number in range(12_000):
        lockout.begin([(USER, f"{number}")])
    assert len(lockout._attempts) == 10_000


def test_an_ipv6_address_stands_for_its_network() -> None:
    assert _network("2001:db8::1") == _network("2001:db8::ffff") != _network("2001:db8:0:1::1")
    assert _network("192.0.2.1") == "192.0.2.1"


async def test_it_encrypts_by_its_own_or_the_brokers_certificate(serve_node: Serve, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from ottla.security.certificates import issue, make_authority

    authority = make_authority("CA")
    (tmp_path / "http.pem").write_bytes(b"".join(issue(authority, "broker", ["127.0.0.1"])))
    settings = HTTP | {
        "ottla.http.security.protocol": "SASL_SSL",
        "listener.name.http.ssl.keystore.location": str(tmp_path / "http.pem"),
    }
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    async with serve_node(settings, data_dir=tmp_path / "data") as node, httpx.AsyncClient(verify=context) as client:
        assert node.http_url.startswith("https://")
        assert (await client.get(node.http_url + "/metrics", auth=("admin", 'adm"in'))).status_code == 200
        # What is no TLS gets no answer, and the port goes on.
        stream = await trio.open_tcp_stream("127.0.0.1", int(node.http_url.rpartition(":")[2]))
        async with stream:
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            with trio.fail_after(10):
                assert b"HTTP/1" not in b"".join([data async for data in stream])
        assert (await client.get(node.http_url + "/healthz")).status_code == 200

        tls = ReloadedTls(node.broker.config, "HTTP", "SASL_SSL")
        assert not tls.renew()
        (tmp_path / "http.pem").write_bytes(b"no certificate at all")
        with pytest.raises(ConfigError, match="neither PEM nor PKCS12"):
            tls.renew()
        (tmp_path / "http.pem").write_bytes(b"".join(issue(authority, "another", ["127.0.0.1"])))
        assert tls.renew()


async def test_a_start_without_a_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HTTP needs a certificate"):
        ReloadedTls(BrokerConfig({}), "HTTP", "SSL")
