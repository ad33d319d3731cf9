"""A listener that asks for SASL, request by request: what it takes when, what it answers, and when it closes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from ottla.client import sasl
from ottla.client.security import from_properties
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.metadata.scram_changes import ScramMechanism, ScramUpsertion
from ottla.security.credentials import salted
from ottla.settings.config import ConfigError
from tests.servers import Client, RunningNode

JAAS_NAME = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="b-secret" user_carl="c-secret";'
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    JAAS_NAME: JAAS,
    "connection.failed.authentication.delay.ms": "10",
}
BOB = b"\0bob\0b-secret"


@pytest.fixture
def serve_sasl(serve_node: Callable[..., Any]) -> Callable[..., Any]:
    """A node with the users bob and carl (PLAIN) and alice (SCRAM-SHA-512, PLAIN)."""

    @asynccontextmanager
    async def serve(**settings: str) -> AsyncIterator[RunningNode]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        async with serve_node(SETTINGS | named) as node:
            salt = b"salt"
            proof = salted(ScramMechanism.SCRAM_SHA_512, "wonder", salt, 4096)
            upsertion = ScramUpsertion("alice", 2, 4096, salt, proof)
            assert await node.broker.controller.alter_scram_credentials([], [upsertion]) == {"alice": None}
            yield node

    return serve


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> ErrorCode:
    answer = await client.call(SaslHandshakeRequest(mechanism=mechanism), version)
    return ErrorCode(answer.error_code)


async def authenticate(client: Client, message: bytes = BOB, version: int = 2) -> SaslAuthenticateResponse:
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=message), version)
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer


async def log_in(client: Client, message: bytes = BOB) -> SaslAuthenticateResponse:
    assert await handshake(client) is ErrorCode.NONE
    answer = await authenticate(client, message)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    return answer


async def is_let_in(client: Client) -> bool:
    return bool((await client.call(MetadataRequest(topics=[]), 12)).brokers)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_plain(serve_sasl: Callable[..., Any], version: int) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        await client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        assert await handshake(client) is ErrorCode.NONE
        answer = await authenticate(client, BOB, version)
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        assert await is_let_in(client)


async def test_scram(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        assert await handshake(client, "SCRAM-SHA-512") is ErrorCode.NONE
        exchange = sasl.begin("SCRAM-SHA-512", "alice", "wonder")
        answer = await authenticate(client, exchange.step(b""))
        answer = await authenticate(client, exchange.step(bytes(answer.auth_bytes)))
        exchange.step(bytes(answer.auth_bytes))
        assert exchange.is_complete
        assert await is_let_in(client)


@pytest.mark.frozen_clock
async def test_brokers_begin_new_sessions_and_lose_no_call(serve_sasl: Callable[..., Any], mock_clock: Any) -> None:
    """Their connection to each other: calls go on while sessions end, also those that come meanwhile."""
    async with serve_sasl(connections_max_reauth_ms="10000") as node, trio.open_nursery() as nursery:
        login = from_properties(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "alice",
                "sasl.password": "wonder",
            }
        )
        connection = TrioConnection("127.0.0.1", node.port, client_id="t", security=login)
        await nursery.start(connection.run)

        async def ask() -> None:
            assert (await connection.call(MetadataRequest(topics=[]))).brokers

        for _ in range(4):
            mock_clock.jump(8.6)  # of ten seconds
            async with trio.open_nursery() as callers:
                for _ in range(5):
                    callers.start_soon(ask)
            assert connection.is_open
        assert node.broker.listeners.accepted["SASL_PLAINTEXT"] == 1
        connection.close()


async def test_the_principal_is_the_user(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        await log_in(client)
        (connection,) = node.broker.listeners._connections
        assert connection.client.principal == "User:bob"


async def test_bare_messages_after_the_first_handshake_version(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        assert await handshake(client, "PLAIN", 0) is ErrorCode.NONE
        await client.send_frame(b"\0alice\0wonder")
        assert await client.receive_frame() == b""
        assert await is_let_in(client)
        refused = await node.connect()
        assert await handshake(refused, "PLAIN", 0) is ErrorCode.NONE
        await refused.send_frame(b"\0alice\0wrong")
        assert await refused.is_closed()


async def test_a_mechanism_that_is_not_enabled(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        answer = await client.call(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-512"]
        assert await client.is_closed()


@pytest.mark.parametrize("message", [b"\0bob\0wrong", b"\0nobody\0b-secret", b"\0alice\0wrong"])
async def test_a_refusal_says_the_same_to_everybody_and_closes(
    serve_sasl: Callable[..., Any], message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve_sasl() as node:
        client = await node.connect()
        await handshake(client)
        answer = await authenticate(client, message)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert await client.is_closed()
    assert "Invalid username or password" in caplog.text
    assert "secret" not in caplog.text
    assert "wrong" not in caplog.text


async def test_what_may_be_wrong_with_a_message_is_not_told(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        await handshake(client)
        answer = await authenticate(client, b"x" * 5000)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
        )
        assert await client.is_closed()


async def test_other_requests_do_not_come_before_the_handshake(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        for request in (MetadataRequest(topics=[]), SaslAuthenticateRequest(auth_bytes=BOB)):
            client = await node.connect()
            await client.send(request, 1)
            assert await client.is_closed()


async def test_versions_may_be_asked_for_once(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        await client.call(asked, 3)
        await client.send(asked, 3)
        assert await client.is_closed()


async def test_versions_that_are_not_known_may_be_asked_for_again(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        await client.send_frame(b"\x00\x12\x00\x63\x00\x00\x00\x01\x00\x01t\x00")
        assert (await client.receive(ApiKey.API_VERSIONS, 0))[1].error_code == ErrorCode.UNSUPPORTED_VERSION
        await client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        await log_in(client)
        assert await is_let_in(client)


async def test_other_requests_between_the_messages_are_told_so(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        await handshake(client)
        answer = await client.call(ListGroupsRequest(), 3)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()


async def test_the_handshake_again_is_refused_and_the_connection_stays(serve_sasl: Callable[..., Any]) -> None:
    async with serve_sasl() as node:
        client = await node.connect()
        await log_in(client)
        assert await handshake(client) is ErrorCode.ILLEGAL_SASL_STATE
        assert (await authenticate(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_let_in(client)


async def test_a_listener_without_sasl_answers_as_kafka_does(serve_node: Callable[..., Any]) -> None:
    async with serve_node() as node:
        client = await node.connect()
        answer = await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        answer = await authenticate(client)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"
        assert await is_let_in(client)


class TestBounds:
    async def test_a_frame_that_is_too_long_closes(self, serve_sasl: Callable[..., Any]) -> None:
        async with serve_sasl(sasl_server_max_receive_size="1000") as node:
            client = await node.connect()
            await client.stream.send_all((1001).to_bytes(4, "big"))
            assert await client.is_closed()

    async def test_who_is_let_in_may_send_longer_ones(self, serve_sasl: Callable[..., Any]) -> None:
        async with serve_sasl(sasl_server_max_receive_size="1000") as node:
            client = await node.connect()
            await log_in(client)
            groups = ListGroupsRequest(states_filter=["x" * 2000])
            assert (await client.call(groups, 4)).error_code == ErrorCode.NONE

    async def test_who_does_not_authenticate_is_sent_away(
        self, serve_sasl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with serve_sasl() as node:
            listeners = node.broker.listeners
            (asked,) = listeners._listener_auths.values()
            listeners.set_listener_auths({"SASL_PLAINTEXT": asked._replace(sasl=asked.sasl._replace(seconds=0.05))})
            silent = await node.connect()
            assert await silent.is_closed()
            half = await node.connect()
            await handshake(half)
            assert await half.is_closed()

    async def test_a_stop_does_not_wait_for_who_has_not_authenticated(self, serve_sasl: Callable[..., Any]) -> None:
        async with serve_sasl() as node:
            client = await node.connect()
            await handshake(client)
            with trio.fail_after(5):
                node.node.stop()
                assert await client.is_closed()


class TestSessions:
    """KIP-368."""

    SETTINGS = "60000"

    async def test_its_life_is_told_and_it_may_begin_again(self, serve_sasl: Callable[..., Any]) -> None:
        async with serve_sasl(connections_max_reauth_ms=self.SETTINGS) as node:
            client = await node.connect()
            assert (await log_in(client)).session_lifetime_ms == 60_000
            assert (await log_in(client)).session_lifetime_ms == 60_000
            assert await is_let_in(client)
            # Not more than once a second.
            assert await handshake(client) is ErrorCode.ILLEGAL_SASL_STATE
            assert await is_let_in(client)

    async def test_nobody_becomes_somebody_else(self, serve_sasl: Callable[..., Any]) -> None:
        async with serve_sasl(connections_max_reauth_ms=self.SETTINGS) as node:
            client = await node.connect()
            await log_in(client)
            await handshake(client)
            answer = await authenticate(client, b"\0carl\0c-secret")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == (
                "Cannot change principals during re-authentication from User.bob: User.carl"
            )
            assert await client.is_closed()

    async def test_with_another_mechanism_the_next_request_closes(self, serve_sasl: Callable[..., Any]) -> None:
        async with serve_sasl(connections_max_reauth_ms=self.SETTINGS) as node:
            client = await node.connect()
            await log_in(client)
            assert await handshake(client, "SCRAM-SHA-512") is ErrorCode.NONE
            await client.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=bob,r=x"), 1)
            assert await client.is_closed()

    async def test_whose_session_has_ended_is_sent_away(self, serve_sasl: Callable[..., Any]) -> None:
        async with serve_sasl(connections_max_reauth_ms="1") as node:
            client = await node.connect()
            await log_in(client)
            await trio.sleep(0.005)
            await client.send(MetadataRequest(topics=[]), 12)
            assert await client.is_closed()

    async def test_even_then_it_may_begin_again(self, serve_sasl: Callable[..., Any]) -> None:
        async with serve_sasl(connections_max_reauth_ms="1") as node:
            client = await node.connect()
            await log_in(client)
            await trio.sleep(0.005)
            assert (await log_in(client)).session_lifetime_ms == 1


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"sasl.enabled.mechanisms": "CRAM-MD5"}, "served are PLAIN"),
            ({"sasl.enabled.mechanisms": ""}, "served are PLAIN"),
            ({JAAS_NAME: "x"}, "cannot be read"),
            ({JAAS_NAME: 'a.ScramLoginModule required username="secret";'}, "names ScramLoginModule"),
        ],
    )
    async def test_what_is_wrong_stops_the_start(
        self, serve_node: Callable[..., Any], settings: dict[str, str], words: str
    ) -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match=words), flatten_subgroups=True) as caught:
            async with serve_node(SETTINGS | settings):
                pass
        assert "secret" not in repr(caught.value)

    async def test_mechanisms_may_change_while_it_runs(self, serve_sasl: Callable[..., Any]) -> None:
        from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
        from ottla.metadata.image import ConfigResource, ResourceType

        async with serve_sasl() as node:
            resource = ConfigResource(ResourceType.BROKER, str(node.broker.node_id))
            change = ConfigChange(
                "listener.name.sasl_plaintext.sasl.enabled.mechanisms", ConfigOperation.SET, "SCRAM-SHA-512"
            )
            assert await node.broker.controller.alter_configs({resource: [change]}) == {resource: None}
            assert await handshake(await node.connect()) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert await handshake(await node.connect(), "SCRAM-SHA-512") is ErrorCode.NONE
