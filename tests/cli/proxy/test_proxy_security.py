"""`ottla proxy` with TLS and SASL: towards clients, towards upstream, passed through, and what goes wrong."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("cryptography")

from ottla.cli import CommandError
from ottla.cli.proxy.security import Securities
from ottla.client.errors import AuthenticationError, ConnectionLostError
from ottla.client.security import from_properties
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.proxy.filters.chain import Named
from ottla.proxy.filters.filter import Call, Filter, request_hook
from ottla.proxy.proxy import Proxy, Ready
from ottla.proxy.shared import Settings
from ottla.security.certificates import issue, make_authority
from ottla.security.listener_auth import ListenerAuth, listener_auth
from tests.proxy.upstreams import assert_nothing_held, until
from tests.servers import Client, RunningNode, serve_node

__all__ = ["serve_node"]

HOST = "127.0.0.1"
Serve = Callable[..., Any]
Properties = dict[str, str]


class Principals(Filter):
    """Notes who asks for metadata."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @request_hook(MetadataRequest)
    async def note(self, request: MetadataRequest, call: Call) -> None:
        self.seen.append(call.client.principal)


class Certificates:
    """An authority, and files of what it has signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = make_authority("Test CA")
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self.authority.certificate)

    def signed(self, file: str, name: str, hosts: list[str] | None = None) -> Path:
        path = self.folder / f"{file}.pem"
        path.write_bytes(b"".join(issue(self.authority, name, hosts or [], 1)))
        return path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.signed("proxy", "CN=proxy", [HOST])
    made.signed("broker", "CN=broker", [HOST])
    made.signed("alice", "CN=alice")
    return made


@pytest.fixture
def listener(certificates: Certificates) -> Properties:
    """What the proxy says to clients: TLS, and SASL with two users."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.keystore.location": str(certificates.folder / "proxy.pem"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "connection.failed.authentication.delay.ms": "10",
        "users.alice": 'won"der\\',
        "users.bob": "b-secret",
    }


def client(certificates: Certificates, protocol: str = "SASL_SSL", **login: str) -> Properties:
    """A client's properties."""
    chosen = {"mechanism": "SCRAM-SHA-512", "username": "alice", "password": 'won"der\\', **login}
    named = {f"sasl.{name}": value for name, value in chosen.items()}
    return {"security.protocol": protocol, "ssl.ca.location": str(certificates.ca), **named}


class Running:
    def __init__(self, ready: Ready, seen: Principals) -> None:
        self.port = ready.port
        self.brokers = ready.brokers
        self.filter = seen


@asynccontextmanager
async def proxied(port: int, listen: Any = None, upstream: Any = None, **settings: Any) -> AsyncIterator[Running]:
    """A proxy in front of a port, with the properties of both sides."""
    seen = Principals()
    securities = Securities(listen, upstream)
    proxy = Proxy(Settings([(HOST, port)], (HOST, 0), **settings), [Named("seen", seen)], securities)
    async with trio.open_nursery() as watching:
        watching.start_soon(securities.run, 0.01)
        async with trio.open_nursery() as nursery:
            try:
                yield Running(await nursery.start(proxy.serve), seen)
            finally:
                proxy.stop()
        assert_nothing_held(proxy)
        watching.cancel_scope.cancel()


async def ask(port: int, properties: Mapping[str, str]) -> int:
    """How many brokers a client with these properties is told of; raises what kept it out."""
    connection = TrioConnection(HOST, port, client_id="t", security=from_properties(properties))
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.run)
            brokers = (await connection.call(MetadataRequest(topics=[]))).brokers
            # The broker's own port has the same rules.
            other = TrioConnection(HOST, brokers[0].port, client_id="t", security=from_properties(properties))
            await nursery.start(other.run)
            await other.call(ListGroupsRequest())
            other.close()
            connection.close()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return len(brokers)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_tls_and_sasl_end_here_and_begin_anew(
    serve_node: Serve, certificates: Certificates, listener: Properties, mechanism: str
) -> None:
    broker = {
        "listeners": f"SASL_SSL://{HOST}:0",
        "ssl.keystore.location": str(certificates.folder / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": 'PlainLoginModule required user_proxy="p-secret";',
    }
    own = client(certificates, mechanism="PLAIN", username="proxy", password="p-secret")
    async with serve_node(broker) as node, proxied(node.port, listener, own) as running:
        assert running.brokers == 1
        assert await ask(running.port, client(certificates, mechanism=mechanism)) == 1
        assert running.filter.seen == ["User:alice"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_clients_may_authenticate_to_upstream(
    serve_sasl_node: Serve, certificates: Certificates, mechanism: str
) -> None:
    """The proxy ends TLS, and reads in what it forwards who the client is."""
    listen = {"security.protocol": "SSL", "ssl.keystore.location": str(certificates.folder / "proxy.pem")}
    async with serve_sasl_node() as node, proxied(node.port, listen) as running:
        assert await ask(running.port, client(certificates, mechanism=mechanism)) == 1
        assert running.filter.seen == ["User:alice"]
        with pytest.raises(AuthenticationError, match=r"invalid credentials|Invalid username"):
            await ask(running.port, client(certificates, mechanism=mechanism, password="guess"))
        assert running.filter.seen == ["User:alice"]


@pytest.fixture
def serve_sasl_node(serve_node: Serve) -> Serve:
    """A node whose user alice authenticates by PLAIN or SCRAM."""
    from ottla.metadata.scram_changes import ScramMechanism, ScramUpsertion
    from ottla.security.credentials import salted

    @asynccontextmanager
    async def serve() -> AsyncIterator[RunningNode]:
        settings = {
            "listeners": f"SASL_PLAINTEXT://{HOST}:0",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "connection.failed.authentication.delay.ms": "10",
        }
        async with serve_node(settings) as node:
            proof = salted(ScramMechanism.SCRAM_SHA_256, 'won"der\\', b"salt", 4096)
            upsertion = ScramUpsertion("alice", ScramMechanism.SCRAM_SHA_256, 4096, b"salt", proof)
            assert await node.broker.controller.alter_scram_credentials([], [upsertion]) == {"alice": None}
            yield node

    return serve


async def test_who_is_refused_is_told_why(
    serve_node: Serve, certificates: Certificates, listener: Properties, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serve_node() as node, proxied(node.port, listener) as running:
        with pytest.raises(AuthenticationError, match="Invalid username or password"):
            await ask(running.port, client(certificates, mechanism="PLAIN", password="guess"))
        with pytest.raises(AuthenticationError, match="due to invalid credentials"):
            await ask(running.port, client(certificates, username="mallory"))
        with pytest.raises(AuthenticationError, match="it does not accept SCRAM-SHA-256, only PLAIN, SCRAM-SHA-512"):
            await ask(running.port, client(certificates, mechanism="SCRAM-SHA-256"))
        with pytest.raises(ConnectionLostError):
            await ask(running.port, client(certificates, "SSL"))
        assert running.filter.seen == []
    assert "closed the connection from 127.0.0.1" in caplog.text
    assert "METADATA came where the client had to authenticate" in caplog.text
    assert "guess" not in caplog.text


async def test_sasl_without_tls_request_by_request(serve_node: Serve, listener: Properties) -> None:
    """What a client may send, and when, is what Kafka says; upstream knows nothing of SASL."""
    plain = {**listener, "security.protocol": "SASL_PLAINTEXT"}
    del plain["ssl.keystore.location"]
    async with serve_node() as node, proxied(node.port, plain) as running:
        stream = Client(await trio.open_tcp_stream(HOST, running.port))
        served = await stream.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        offered = {it.api_key: (it.min_version, it.max_version) for it in served.api_keys}
        assert offered[ApiKey.SASL_HANDSHAKE] == (1, 1)
        assert offered[ApiKey.SASL_AUTHENTICATE] == (0, 2)
        answer = await stream.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (answer.error_code, answer.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-512"])
        await stream.send(MetadataRequest(topics=[]), 12)
        _, refused = await stream.receive(ApiKey.METADATA, 12)
        assert refused.brokers == []
        assert await stream.is_closed()
        await stream.stream.aclose()
        # All at once: answers come in order, and the request behind them is let in.
        stream = Client(await trio.open_tcp_stream(HOST, running.port))
        await stream.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await stream.send(SaslAuthenticateRequest(auth_bytes=b"\0bob\0b-secret"), 2)
        await stream.send(MetadataRequest(topics=[]), 12)
        assert (await stream.receive(ApiKey.SASL_HANDSHAKE, 1))[1].error_code == 0
        assert (await stream.receive(ApiKey.SASL_AUTHENTICATE, 2))[1].error_code == 0
        assert len((await stream.receive(ApiKey.METADATA, 12))[1].brokers) == 1
        again = await stream.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        await stream.stream.aclose()
        assert running.filter.seen == ["User:bob"]


async def test_a_client_is_who_its_certificate_says(serve_node: Serve, certificates: Certificates) -> None:
    listen = {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(certificates.folder / "proxy.pem"),
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
    }
    shown = client(certificates, "SSL") | {"ssl.keystore.location": str(certificates.folder / "alice.pem")}
    async with serve_node() as node, proxied(node.port, listen) as running:
        assert await ask(running.port, shown) == 1
        assert running.filter.seen == ["User:alice"]
        with pytest.raises(ConnectionLostError):
            await ask(running.port, client(certificates, "SSL"))


async def test_a_new_certificate_is_shown_without_a_restart(
    serve_node: Serve, certificates: Certificates, tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes((certificates.folder / "proxy.pem").read_bytes())

    async def shown() -> Any:
        context = ssl.create_default_context(cafile=str(certificates.ca))
        stream = trio.SSLStream(await trio.open_tcp_stream(HOST, running.port), context, server_hostname=HOST)
        await stream.do_handshake()
        subject = stream.getpeercert()["subject"]
        await trio.aclose_forcefully(stream)
        return subject[0][0][1]

    listen = {"security.protocol": "SSL", "ssl.keystore.location": str(key)}
    async with serve_node() as node, proxied(node.port, listen) as running:
        assert await shown() == "proxy"
        key.write_bytes(certificates.signed("renewed", "CN=renewed", [HOST]).read_bytes())
        with trio.fail_after(10):
            while await shown() != "renewed":  # noqa: ASYNC110 - nothing tells that the file was read
                await trio.sleep(0.01)


async def test_a_client_has_to_say_in_time_who_it_is(
    serve_node: Serve, listener: Properties, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def hurried(*given: Any) -> ListenerAuth:
        made = listener_auth(*given)
        assert made.sasl is not None
        return made._replace(sasl=made.sasl._replace(seconds=0.05))

    monkeypatch.setattr("ottla.cli.proxy.security.listener_auth", hurried)
    plain = {**listener, "security.protocol": "SASL_PLAINTEXT"}
    async with serve_node() as node, proxied(node.port, plain) as running:
        late = Client(await trio.open_tcp_stream(HOST, running.port))
        await late.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        assert await late.is_closed()
        await late.stream.aclose()
    assert "it has not authenticated within 0.05 s" in caplog.text


async def test_a_client_without_tls_is_told_nothing(
    serve_node: Serve, certificates: Certificates, listener: Properties, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_node() as node, proxied(node.port, listener) as running:
        stray = Client(await trio.open_tcp_stream(HOST, running.port))
        await stray.send(MetadataRequest(topics=[]), 12)
        await stray.is_closed()
        await stray.stream.aclose()
        await until(lambda: "the client does not speak TLS" in caplog.text)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"sasl.password": "wrong"}, "refuses to let us in: Authentication failed"),
        ({"ssl.truststore.certificates": "", "ssl.ca.location": ""}, "certificate is refused"),
    ],
)
async def test_upstream_that_does_not_let_the_proxy_in(
    serve_node: Serve, certificates: Certificates, own: Properties, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = {
        "listeners": f"SASL_SSL://{HOST}:0",
        "ssl.keystore.location": str(certificates.folder / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": "10",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": 'PlainLoginModule required user_proxy="p-secret";',
    }
    upstream = client(certificates, mechanism="PLAIN", username="proxy", password="p-secret") | own
    async with serve_node(broker) as node, proxied(node.port, None, upstream) as running:
        assert running.brokers == 0
        lost = Client(await trio.open_tcp_stream(HOST, running.port))
        await lost.send(MetadataRequest(topics=[]), 12)
        assert await lost.is_closed()
        await lost.stream.aclose()
        await until(lambda: f"cannot reach upstream {HOST}:{node.port}" in caplog.text)
    assert why in caplog.text
    assert "p-secret" not in caplog.text


async def test_what_is_wrong_later_changes_nothing(
    serve_node: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "listen.properties"
    rules = "security.protocol=SASL_PLAINTEXT\nsasl.enabled.mechanisms=PLAIN\n"
    file.write_text(f"{rules}users.bob=old\n")
    bob = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "bob"}
    async with serve_node() as node, proxied(node.port, file) as running:
        for wrong, why in (
            ("security.protocol=PLAINTEXT\n", "SASL cannot be switched on or off"),
            ("x=1\n", "Unknown setting x"),
        ):
            file.write_text(wrong)
            await until(lambda why=why: why in caplog.text)  # type: ignore[misc]
            assert await ask(running.port, {**bob, "sasl.password": "old"}) == 1
        caplog.set_level(logging.INFO)
        file.write_text(f"{rules}users.bob=new\n")
        await until(lambda: "new connections use" in caplog.text)
        assert await ask(running.port, {**bob, "sasl.password": "new"}) == 1


@pytest.mark.parametrize(
    ("listen", "upstream", "sentence"),
    [
        ({"security.protocol": "TLS"}, None, "security.protocol is TLS; known are PLAINTEXT, SSL"),
        ({"security": {"protocol": "SSL"}}, None, "needs a certificate"),
        ({"ssl.kestore.location": "x"}, None, "Unknown setting ssl.kestore.location"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": ["CRAM-MD5"]}, None, "served are PLAIN"),
        ({"users": "/none"}, None, "/none cannot be read: No such file"),
        (None, {"security.protocol": "SASL_SSL"}, "sasl.mechanism is GSSAPI; known are PLAIN"),
        (None, {"security.protocol": "SSL", "ssl": {"ca.location": "/none"}}, "/none cannot be read"),
        (Path("/none.properties"), None, "/none.properties cannot be read"),
    ],
)
def test_what_the_settings_may_not_say(listen: Any, upstream: Any, sentence: str) -> None:
    with pytest.raises(CommandError) as raised:
        Securities(listen, upstream)
    assert sentence in str(raised.value)
