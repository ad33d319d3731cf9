"""GSSAPI with tickets of a real KDC: who is let in as whom, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.describe_acls import DescribeAclsRequest
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.settings.config import ConfigError
from ottla.settings.sources import STANDARD_AUTHORIZER
from tests import kerberos
from tests.kerberos import HOST, REALM, SERVICE, Realm
from tests.servers import Client, RunningNode

if reason := kerberos.missing():
    pytest.skip(reason, allow_module_level=True)

import gssapi

JAAS_NAME = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
NO_LAYER = bytes([1, 0, 0, 0])


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with kerberos.realm(tmp_path_factory.mktemp("realm")) as made:
        made.keytab(f"{SERVICE}/{HOST}")
        made.keytab(f"other/{HOST}")
        made.keytab("alice")
        made.keytab("robot/batch")
        yield made


@pytest.fixture
def serve(serve_node: Callable[..., Any], realm: Realm) -> Callable[..., Any]:
    @asynccontextmanager
    async def serve(options: str = "", jaas: str = "", **settings: str) -> AsyncIterator[RunningNode]:
        keytab = realm.folder / f"{SERVICE}-{HOST}.keytab"
        own = f'com.sun.security.auth.module.Krb5LoginModule required keyTab="{keytab}" {options};'
        named = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "GSSAPI",
            JAAS_NAME: jaas or own,
            "sasl.kerberos.service.name": SERVICE,
            "connection.failed.authentication.delay.ms": "1",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        async with serve_node(named) as node:
            yield node

    return serve


def ticket(realm: Realm, principal: str, service: str = SERVICE) -> Any:
    """A client's side, with a ticket for the broker."""
    keytab = realm.folder / f"{principal.replace('/', '-')}.keytab"
    store = {"client_keytab": str(keytab), "ccache": f"MEMORY:{principal}"}
    name = gssapi.Name(f"{principal}@{REALM}", gssapi.NameType.kerberos_principal)
    credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
    target = gssapi.Name(f"{service}@{HOST}", gssapi.NameType.hostbased_service)
    return gssapi.SecurityContext(
        name=target, creds=credentials, usage="initiate", flags=[gssapi.RequirementFlag.mutual_authentication]
    )


async def say(client: Client, message: bytes) -> Any:
    return await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)


async def show(client: Client, context: Any, chosen: bytes = NO_LAYER) -> Any:
    """The whole exchange; its last answer."""
    assert (await client.call(SaslHandshakeRequest(mechanism="GSSAPI"), 1)).error_code == 0
    answer = await say(client, context.step(None))
    while not answer.error_code and not context.complete:
        message = context.step(bytes(answer.auth_bytes))
        if message or context.complete:
            answer = await say(client, message or b"")
    if answer.error_code:
        return answer
    assert context.unwrap(bytes(answer.auth_bytes)).message == NO_LAYER
    return await say(client, context.wrap(chosen, False).message)


async def name_of(client: Client, caplog: pytest.LogCaptureFixture) -> str:
    """As whom the broker knows the client, by the audit log."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "ottla.audit"):
        await client.call(DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), 3)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "ottla.audit"]
    return line.partition(" is denied")[0]


@pytest.mark.parametrize(
    ("principal", "rules", "user"),
    [
        ("alice", "DEFAULT", "User:alice"),
        ("robot/batch", "DEFAULT", "User:robot"),
        ("robot/batch", r"RULE:[2:$2-$1]/U", "User:BATCH-ROBOT"),
    ],
)
async def test_who_has_a_ticket_is_let_in(
    serve: Callable[..., Any], realm: Realm, principal: str, rules: str, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(sasl_kerberos_principal_to_local_rules=rules) as node:
        client = await node.connect()
        answer = await show(client, ticket(realm, principal))
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        assert await name_of(client, caplog) == user


@pytest.mark.parametrize("options", [f'principal="{SERVICE}/{HOST}@{REALM}"', f'serviceName="{SERVICE}"'])
async def test_whose_keys_count(serve: Callable[..., Any], realm: Realm, options: str) -> None:
    async with serve(options) as node:
        assert (await show(await node.connect(), ticket(realm, "alice"))).error_code == 0
        answer = await show(await node.connect(), ticket(realm, "alice", service="other"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "invalid credentials with SASL mechanism GSSAPI" in answer.error_message


async def test_who_no_rule_fits_is_not_let_in(serve: Callable[..., Any], realm: Realm) -> None:
    async with serve(sasl_kerberos_principal_to_local_rules="RULE:[1:$1](bob)") as node:
        answer = await show(await node.connect(), ticket(realm, "alice"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("chosen", [b"", b"\1", bytes([2, 0, 0, 0]), bytes([4, 0, 1, 0]), bytes(4)])
async def test_layers_that_were_not_offered(serve: Callable[..., Any], realm: Realm, chosen: bytes) -> None:
    async with serve() as node:
        answer = await show(await node.connect(), ticket(realm, "alice"), chosen)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_what_is_no_ticket_or_was_shown_before(serve: Callable[..., Any], realm: Realm) -> None:
    async with serve() as node:
        shown = ticket(realm, "alice").step(None)
        for number, message in enumerate((shown, shown, shown[:-1], b"", b"x" * 65_536, bytes(65_537))):
            client = await node.connect()
            await client.call(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
            answer = await say(client, message)
            assert bool(answer.error_code) is bool(number), "the first is good, and a replay is not"


@pytest.mark.parametrize(
    ("jaas", "text"),
    [
        ("com.sun.security.auth.module.Krb5LoginModule required;", "must name a keytab"),
        ('com.sun.security.auth.module.Krb5LoginModule required keyTab="/nowhere";', "must name a keytab"),
        ('PlainLoginModule required keyTab="/nowhere";', "Ottla knows Krb5LoginModule there"),
    ],
)
async def test_settings_that_cannot_be(serve: Callable[..., Any], jaas: str, text: str) -> None:
    with pytest.raises((ConfigError, BaseExceptionGroup)) as refused:
        async with serve(jaas=jaas):
            pass
    assert text in _told(refused.value)


async def test_a_keytab_without_the_principal(serve: Callable[..., Any]) -> None:
    with pytest.raises((ConfigError, BaseExceptionGroup)) as refused:
        async with serve(f'principal="{SERVICE}/elsewhere@{REALM}"'):
            pass
    assert "cannot be used" in _told(refused.value)


def _told(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
