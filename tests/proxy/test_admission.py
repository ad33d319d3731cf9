"""Who a client is, as upstream's answers say: what may overlap with a login, and who comes out of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.proxy.admission import Admission
from ottla.proxy.claims import Claim
from ottla.proxy.filters.chain import Named
from ottla.proxy.filters.filter import Call, Filter, request_hook
from tests.client.brokers import answer
from tests.proxy.upstreams import Upstream
from tests.servers import Client

Serve = Callable[..., Any]
BOB = SaslAuthenticateRequest(auth_bytes=b"\0bob\0secret")
ALICE = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")


class Principals(Filter):
    """Notes who asks for metadata."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @request_hook(MetadataRequest)
    async def note(self, request: MetadataRequest, call: Call) -> None:
        self.seen.append(call.client.principal)


async def logged_in(client: Client, message: SaslAuthenticateRequest = BOB) -> None:
    assert (await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
    await client.call(message, 2)


class Letting(Upstream):
    """Lets everybody in."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__()
        self.handlers |= {
            ApiKey.SASL_HANDSHAKE: lambda received: SaslHandshakeResponse(mechanisms=["PLAIN"]),
            ApiKey.SASL_AUTHENTICATE: lambda received: SaslAuthenticateResponse(error_code=code),
        }


async def test_nothing_is_forwarded_while_a_login_is_unanswered(serve_proxy: Serve) -> None:
    """And a login that is repeated waits for what was asked before."""
    upstream, seen = Letting(), Principals()
    async with serve_proxy(upstream, filters=[Named("seen", seen)]) as proxy:
        upstream.by_hand = True
        client = await proxy.connect()
        metadata: tuple[Any, int] = (MetadataRequest(topics=[]), 12)
        login: list[tuple[Any, int]] = [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (BOB, 2)]
        asked = [*login, metadata, *login, metadata]
        for request, version in asked:
            await client.send(request, version)
        connection = await upstream.connections.receive()
        for request, version in asked:
            received = await connection.next()
            assert received.key is request.API_KEY
            with trio.move_on_after(0.02):
                raise AssertionError(f"{await connection.next()} came before the answer")
            response = upstream.handlers[received.key](received)
            assert response is not None
            await connection.send(answer(received, response))
            await client.receive(request.API_KEY, version)
        assert seen.seen == ["User:bob", "User:bob"]


async def test_who_has_acted_does_not_become_somebody_else(
    serve_proxy: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    upstream, seen = Letting(), Principals()
    async with serve_proxy(upstream, filters=[Named("seen", seen)]) as proxy:
        nobody, bob, undecided = [await proxy.connect() for _ in range(3)]
        await nobody.call(MetadataRequest(topics=[]), 12)
        with pytest.raises(EOFError):
            await logged_in(nobody)
        await logged_in(bob)
        await bob.call(MetadataRequest(topics=[]), 12)
        await logged_in(bob)
        with pytest.raises(EOFError):
            await logged_in(bob, ALICE)
        await logged_in(undecided)
        await logged_in(undecided, ALICE)
        await undecided.call(MetadataRequest(topics=[]), 12)
        assert seen.seen == ["User:ANONYMOUS", "User:bob", "User:alice"]
    assert "it was 'User:bob', and upstream has let it in as 'User:alice'" in caplog.text


async def test_who_is_refused_gets_nothing_more(serve_proxy: Serve) -> None:
    """Even if upstream has not hung up yet."""
    async with serve_proxy(Letting(ErrorCode.SASL_AUTHENTICATION_FAILED)) as proxy:
        client = await proxy.connect()
        await logged_in(client)
        with pytest.raises(EOFError):
            await client.call(MetadataRequest(topics=[]), 12)
        assert proxy.upstream.requests[-1].key is ApiKey.SASL_AUTHENTICATE


async def test_a_request_in_the_middle_of_an_exchange_is_refused_as_kafka_does(serve_proxy: Serve) -> None:
    async with serve_proxy(Letting()) as proxy:
        client = await proxy.connect()
        await client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        answered = await client.call(ListGroupsRequest(), 4)
        assert answered.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()
        assert proxy.upstream.requests[-1].key is ApiKey.SASL_HANDSHAKE


async def test_upstream_that_asks_nobody_says_so_and_goes_on(serve_proxy: Serve) -> None:
    upstream = Letting(ErrorCode.ILLEGAL_SASL_STATE)
    upstream.handlers[ApiKey.SASL_HANDSHAKE] = lambda received: SaslHandshakeResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE
    )
    async with serve_proxy(upstream) as proxy:
        client = await proxy.connect()
        await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (await client.call(BOB, 2)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.call(MetadataRequest(topics=[]), 12)).brokers


async def test_upstream_that_lets_in_who_has_named_no_mechanism(serve_proxy: Serve) -> None:
    async with serve_proxy(Letting()) as proxy:
        with pytest.raises(EOFError):
            await (await proxy.connect()).call(BOB, 2)


@pytest.mark.frozen_clock
async def test_a_session_ends_when_upstream_has_said(mock_clock: Any) -> None:
    admission = Admission(None, "User:ANONYMOUS")
    for request, response in (
        (SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse()),
        (BOB, SaslAuthenticateResponse(session_lifetime_ms=1000)),
    ):
        body = codec.build(request, 1)
        assert await admission.take(request.API_KEY, 1, body, 0) is None
        assert admission.is_asked
        admission.answered(response)
    assert (admission.principal, admission.has_session) == ("User:bob", True)
    mock_clock.jump(1.1)
    assert not admission.has_session


@pytest.mark.parametrize(
    ("mechanism", "message", "principal"),
    [
        ("PLAIN", b"\0bob\0x", "User:bob"),
        ("PLAIN", b"bob\0bob\0x", "User:bob"),
        ("PLAIN", b"\0\0x", None),
        ("PLAIN", b"bob", None),
        ("PLAIN", b"\0b\xff\0x", "User:b\ufffd"),
        ("SCRAM-SHA-256", b"n,,n=bob,r=x", "User:bob"),
        ("SCRAM-SHA-512", b"n,a=a=2Cb=3Dc,m=n=x,n=a=2Cb=3Dc,r=x,n=alice", "User:a,b=c"),
        ("SCRAM-SHA-256", b"n,,n=id,r=x,tokenauth=true", ""),
        ("SCRAM-SHA-256", b"n,,n=id,r=x,y=z,tokenauth=TRUE", ""),
        ("SCRAM-SHA-256", b"n,,n=bob,r=x,tokenauth=false", "User:bob"),
        ("SCRAM-SHA-256", b"n,,n=bob,r=x,tokenauth=true,tokenauth=false", None),
        ("SCRAM-SHA-256", b"y,,n=bob,r=x", None),
        ("SCRAM-SHA-256", b"n,,r=x", None),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer a.b.c\x01\x01", ""),
        ("GSSAPI", b"\x60", ""),
    ],
)
def test_whom_a_first_message_names(mechanism: str, message: bytes, principal: str | None) -> None:
    claim = Claim(mechanism)
    claim.take(message)
    claim.take(b"\0alice\0x")
    claim.take(b"n,,n=alice,r=x")
    assert claim.principal == principal


def test_which_answers_let_in() -> None:
    answers = (b"", b"r=x,s=y,i=4096", b"v=z")
    assert [Claim("PLAIN").is_proved(it) for it in answers] == [True, True, True]
    assert [Claim("SCRAM-SHA-256").is_proved(it) for it in answers] == [False, False, True]
    assert [Claim("OAUTHBEARER").is_proved(it) for it in answers] == [True, False, False]
