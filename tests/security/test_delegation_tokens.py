"""Delegation tokens (KIP-48): who gets them, what they open, and when that ends."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio

from ottla.client import sasl
from ottla.client.security import from_properties
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.create_acls import AclCreation, CreateAclsRequest
from ottla.kproto.messages.access.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.kproto.messages.access.describe_acls import DescribeAclsRequest
from ottla.kproto.messages.access.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.kproto.messages.access.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.kproto.messages.access.renew_delegation_token import RenewDelegationTokenRequest
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.metadata import delegation_tokens
from ottla.metadata.acls import AclOperation, AclResource
from ottla.security import credentials
from ottla.settings.sources import STANDARD_AUTHORIZER
from ottla.storage.clock import ManualClock
from tests.servers import Client, RunningNode

DAY_MS: Final = 86_400_000
SECRET: Final = "the master's key"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAIN://127.0.0.1:0",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAIN:PLAINTEXT",
    "inter.broker.listener.name": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'PlainLoginModule required user_alice="alice-p" user_bob="bob-p" user_carl="carl-p";'
    ),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:carl;User:ANONYMOUS",
    "connection.failed.authentication.delay.ms": "1",
    "delegation.token.secret.key": SECRET,
}

Create = CreateDelegationTokenRequest
Describe = DescribeDelegationTokenRequest


@pytest.fixture
def serve(serve_node: Callable[..., Any]) -> Callable[..., Any]:
    @asynccontextmanager
    async def serve(**settings: str) -> AsyncIterator[RunningNode]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        async with serve_node(SETTINGS | named) as node:
            yield node

    return serve


async def connect(node: RunningNode, user: str) -> Client:
    client = await node.connect()
    await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    message = f"\0{user}\0{user}-p".encode()
    assert (await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)).error_code == 0
    return client


async def show(client: Client, token_id: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
    """Log in with a token; the last answer."""
    exchange = sasl.begin(mechanism, token_id, password, is_token=True)
    await client.call(SaslHandshakeRequest(mechanism=mechanism), 1)
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=exchange.step(b"")), 2)
    while not exchange.is_complete and not answer.error_code:
        message = exchange.step(bytes(answer.auth_bytes))
        if not exchange.is_complete:
            answer = await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)
    return answer


async def create(client: Client, *, renewers: tuple[str, ...] = (), **fields: Any) -> Any:
    them = [CreatableRenewers(principal_type="User", principal_name=name) for name in renewers]
    return await client.call(Create(renewers=them, **{"max_lifetime_ms": -1, **fields}), 3)


def password_of(token: Any) -> str:
    return b64encode(token.hmac).decode()


async def described(client: Client, *owners: str, version: int = 3) -> list[Any]:
    asked = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    answer = await client.call(Describe(owners=asked or None), version)
    assert answer.error_code == 0
    return list(answer.tokens)


async def allow(node: RunningNode, operation: AclOperation, resource: AclResource, name: str) -> None:
    creation = AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:bob",
        host="*",
        operation=operation,
        permission_type=3,
    )
    (result,) = (await (await connect(node, "carl")).call(CreateAclsRequest(creations=[creation]), 3)).results
    assert result.error_code == 0, result.error_message


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_who_shows_a_token_is_its_owner(
    serve: Callable[..., Any], mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    async with serve() as node:
        token = await create(await connect(node, "alice"))
        assert (token.error_code, token.principal_type, token.principal_name) == (0, "User", "alice")
        assert token.expiry_timestamp_ms - token.issue_timestamp_ms == DAY_MS
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 7 * DAY_MS
        worker = await node.connect()
        answer = await show(worker, token.token_id, password_of(token), mechanism)
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= DAY_MS
        answer = await worker.call(DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), 3)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "User:alice is denied DESCRIBE" in caplog.text


async def test_ottla_s_own_clients_show_tokens_by_kafka_s_settings(serve: Callable[..., Any]) -> None:
    async with serve() as node:
        token = await create(await connect(node, "alice"))
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        jaas = f'{module} username="{token.token_id}" password="{password_of(token)}" tokenauth="true";'
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
        login = from_properties(settings).login
        assert login is not None
        exchange = login.begin()
        client = await node.connect()
        await client.call(SaslHandshakeRequest(mechanism=login.mechanism), 1)
        answer = b""
        while message := exchange.step(answer):
            answer = bytes((await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)).auth_bytes)
        assert exchange.is_complete


async def test_a_token_and_its_password_are_of_no_use_in_other_ways(serve: Callable[..., Any]) -> None:
    """As a user's name and password, with another's secret, or after a change of a letter."""
    async with serve() as node:
        alice = await connect(node, "alice")
        token, other = await create(alice), await create(alice)
        for is_token, token_id, password in (
            (False, token.token_id, password_of(token)),
            (True, token.token_id, password_of(other)),
            (True, token.token_id.upper(), password_of(token)),
            (True, "alice", "alice-p"),
        ):
            client = await node.connect()
            exchange = sasl.begin("SCRAM-SHA-256", token_id, password, is_token=is_token)
            await client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            first = await client.call(SaslAuthenticateRequest(auth_bytes=exchange.step(b"")), 2)
            assert first.error_code == 0, "who knows no password learns nothing about users and tokens"
            last = await client.call(SaslAuthenticateRequest(auth_bytes=exchange.step(bytes(first.auth_bytes))), 2)
            assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_unknown_tokens_take_the_work_of_known_ones(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in rounds. The second time nothing is hashed, for either."""
    counted: list[tuple[str, int]] = []
    pbkdf2 = credentials.salted

    def count(mechanism: Any, password: str, salt: bytes, iterations: int) -> bytes:
        counted.append((mechanism.name, iterations))
        return pbkdf2(mechanism, password, salt, iterations)

    monkeypatch.setattr(credentials, "salted", count)
    async with serve() as node:
        token = await create(await connect(node, "alice"))
        for expected in ([("SCRAM_SHA_256", 4096)], []):
            for token_id in (token.token_id, "there is none"):
                counted.clear()
                answer = await show(await node.connect(), token_id, "wrong")
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert counted == expected


async def test_with_a_token_there_are_no_more_tokens(serve: Callable[..., Any]) -> None:
    async with serve() as node:
        token = await create(await connect(node, "alice"))
        worker = await node.connect()
        await show(worker, token.token_id, password_of(token))
        nobody = await node.connect("PLAIN")
        for client in (worker, nobody):
            for request, version in (
                (Create(max_lifetime_ms=-1), 3),
                (RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1), 2),
                (ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2),
                (Describe(owners=None), 3),
            ):
                answer = await client.call(request, version)
                assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert len(node.broker.metadata.delegation_tokens) == 1


async def test_without_a_key_there_are_none(serve: Callable[..., Any]) -> None:
    async with serve(delegation_token_secret_key="") as node:
        alice = await connect(node, "alice")
        for request, version in (
            (Create(max_lifetime_ms=-1), 3),
            (RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), 2),
            (ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), 2),
            (Describe(owners=None), 3),
        ):
            assert (await alice.call(request, version)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        answer = await show(await node.connect(), "some id", "some password")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_owners_and_renewers_decide_how_long_it_lives(serve: Callable[..., Any]) -> None:
    async with serve() as node:
        alice, bob, carl = [await connect(node, name) for name in ("alice", "bob", "carl")]
        token = await create(alice, renewers=("bob",), max_lifetime_ms=2 * DAY_MS)

        async def renew(client: Client, period_ms: int, hmac: bytes = token.hmac) -> Any:
            return await client.call(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)

        async def expire(client: Client, period_ms: int) -> Any:
            return await client.call(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms), 2)

        hour_ms = DAY_MS // 24
        shorter = await renew(bob, hour_ms)
        assert shorter.error_code == 0
        assert shorter.expiry_timestamp_ms - token.issue_timestamp_ms < 2 * hour_ms
        longest = await renew(alice, 9 * DAY_MS)
        assert DAY_MS <= longest.expiry_timestamp_ms - token.issue_timestamp_ms < 2 * DAY_MS
        assert (await expire(bob, 9 * DAY_MS)).expiry_timestamp_ms == token.max_timestamp_ms
        for client, hmac, code in (
            (carl, token.hmac, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
            (alice, b"other", ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        ):
            answer = await renew(client, -1, hmac)
            assert (answer.error_code, answer.expiry_timestamp_ms) == (code, 0)
        assert (await expire(carl, -1)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        ended = await expire(bob, -1)
        assert ended.error_code == 0
        assert token.issue_timestamp_ms <= ended.expiry_timestamp_ms < token.issue_timestamp_ms + hour_ms
        assert (await renew(alice, -1)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        answer = await show(await node.connect(), token.token_id, password_of(token))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_what_has_ended_is_removed(serve: Callable[..., Any]) -> None:
    async with serve(delegation_token_expiry_check_interval_ms="50") as node:
        alice = await connect(node, "alice")
        await create(alice, max_lifetime_ms=1)
        staying = await create(alice)
        with trio.fail_after(5):
            while len(node.broker.metadata.delegation_tokens) > 1:
                await node.broker.controller.next_image()
        assert list(node.broker.metadata.delegation_tokens) == [staying.token_id]


async def test_what_has_ended_opens_nothing_even_if_it_is_still_there(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as node:
        alice = await connect(node, "alice")
        token = await create(alice)
        later = ManualClock(token.expiry_timestamp_ms + 1)
        monkeypatch.setattr(node.broker.delegation_tokens, "_clock", later)
        answer = await show(await node.connect(), token.token_id, password_of(token))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        renewed = await alice.call(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1), 2)
        assert renewed.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


async def test_tokens_for_others_and_of_others_need_rights(serve: Callable[..., Any]) -> None:
    async with serve() as node:
        alice, bob = await connect(node, "alice"), await connect(node, "bob")
        own = await create(alice)
        for_alice: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "alice"}
        refused = await create(bob, **for_alice)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_requester_principal_name) == ("alice", "bob")
        assert refused.issue_timestamp_ms == refused.expiry_timestamp_ms == refused.max_timestamp_ms == -1
        assert await described(bob) == []
        await allow(node, AclOperation.CREATE_TOKENS, AclResource.USER, "User:alice")
        made = await create(bob, **for_alice)
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "bob")
        assert await described(bob) == [], "who made it for another is not its owner"
        await allow(node, AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, own.token_id)
        assert [it.token_id for it in await described(bob)] == [own.token_id]
        await allow(node, AclOperation.DESCRIBE_TOKENS, AclResource.USER, "User:alice")
        assert [it.token_id for it in await described(bob)] == [own.token_id, made.token_id]
        assert await described(bob, "bob") == []
        assert len(await described(bob, "alice", "bob", version=1)) == 2


async def test_renewers_are_users(serve: Callable[..., Any]) -> None:
    async with serve() as node:
        alice = await connect(node, "alice")
        robot = [CreatableRenewers(principal_type="Robot", principal_name="r2")]
        answer = await alice.call(Create(renewers=robot, max_lifetime_ms=-1), 3)
        assert (answer.error_code, answer.token_id) == (ErrorCode.INVALID_PRINCIPAL_TYPE, "")
        answer = await create(alice, owner_principal_name="bob")
        assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_tokens_are_bounded(serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "MAX_TOKENS_OF_REQUESTER", 2)
    monkeypatch.setattr(delegation_tokens, "MAX_TOKENS", 3)
    async with serve() as node:
        alice, bob = await connect(node, "alice"), await connect(node, "bob")
        codes = [(await create(client)).error_code for client in (alice, alice, alice, bob, bob)]
        full = ErrorCode.POLICY_VIOLATION
        assert codes == [0, 0, full, 0, full]
        assert (await create(bob, renewers=("n" * 5_000,))).error_code == full


async def test_no_secret_is_stored_or_logged(serve: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve() as node:
        token = await create(await connect(node, "alice"))
        await show(await node.connect(), token.token_id, password_of(token))
        stored = await node.broker.controller._store.list("")
        known = "\n".join(f"{entry.key} {entry.value!r}" for entry in stored.entries) + caplog.text
        assert token.token_id in known
        for secret in (SECRET, password_of(token), token.hmac.hex(), repr(token.hmac)):
            assert secret not in known


async def test_a_token_is_good_on_every_node(serve_node: Callable[..., Any]) -> None:
    async with serve_node(SETTINGS) as one, serve_node(SETTINGS | {"node.id": "2"}) as other:
        token = await create(await connect(one, "alice"), renewers=("bob",))
        with trio.fail_after(5):
            while not other.broker.metadata.delegation_tokens:
                await other.broker.controller.next_image()
        assert (await show(await other.connect(), token.token_id, password_of(token))).error_code == 0
        assert [it.hmac for it in await described(await connect(other, "bob"))] == [token.hmac]
        ended = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
        assert (await (await connect(other, "bob")).call(ended, 2)).error_code == 0
