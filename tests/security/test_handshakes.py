"""Strangers at the door: conversations drawn at random, on a plain and on an encrypted listener that ask for SASL.

`make handshakes` draws more of them. A seed that fails is named, and draws the same ones again (HANDSHAKES_SEED).
"""

from __future__ import annotations

import logging
import os
import random
import ssl
from collections.abc import Callable
from typing import Any, Final

import pytest
import trio
from trio.testing import memory_stream_pair

pytest.importorskip("cryptography")

from ottla.client import sasl
from ottla.client.admin.users import credential
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import build_request_frame
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.metadata.scram_changes import ScramUpsertion
from ottla.security.certificates import issue, make_authority
from ottla.server.network import closed_log
from tests.security.handshakes import Conversation, ViolationError
from tests.servers import Client, RunningNode

HOST: Final = "127.0.0.1"
COUNT: Final = int(os.environ.get("HANDSHAKES", "200"))
SEED: Final = int(os.environ.get("HANDSHAKES_SEED", "7"))
_AT_ONCE: Final = 20
MECHANISM: Final = "SCRAM-SHA-256"


@pytest.mark.timeout(120 + COUNT)
async def test_strangers_get_nothing_and_honest_clients_are_served(
    serve_node: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    authority = make_authority("CA")
    pair = issue(authority, "broker", [HOST])
    settings = {
        "listeners": f"SASL_PLAINTEXT://{HOST}:0,SASL_SSL://{HOST}:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.key": pair.key.decode(),
        "ssl.keystore.certificate.chain": pair.certificate.decode(),
        "connection.failed.authentication.delay.ms": "0",
    }
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    caplog.set_level(logging.INFO)
    async with serve_node(settings) as node:
        made = credential("alice", "wonder", MECHANISM)
        upsertion = ScramUpsertion("alice", made.mechanism, made.iterations, made.salt, made.salted_password)
        assert await node.broker.controller.alter_scram_credentials([], [upsertion]) == {"alice": None}
        plain, encrypted = (endpoint.port for endpoint in node.broker.metadata.brokers[1].endpoints)
        heard = await log_in(node)
        slots = trio.CapacityLimiter(_AT_ONCE)

        async def one(number: int) -> None:
            choices = random.Random(SEED * 1_000_003 + number)
            kind = choices.choice(["plain", "encrypted", "plain bytes on the encrypted port"])
            async with slots:
                stream: trio.abc.Stream = await trio.open_tcp_stream(HOST, plain if kind == "plain" else encrypted)
                if kind == "encrypted":
                    stream = trio.SSLStream(stream, context, server_hostname=HOST, https_compatible=True)
                try:
                    await Conversation(stream, choices, heard).run()
                except AssertionError as violation:
                    violation.add_note(f"{kind}, HANDSHAKES_SEED={SEED}, conversation {number}")
                    raise

        async with trio.open_nursery() as nursery:
            for number in range(COUNT):
                nursery.start_soon(one, number)
        assert await log_in(node)
        with trio.fail_after(20):
            await connections_end(node, len(node.clients))
    faults = [record.getMessage() for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    assert not faults


async def connections_end(node: RunningNode, left: int) -> None:
    """Wait until no more than so many are open."""
    assert node.broker.listeners is not None
    for pause in (0.01 * attempt for attempt in range(10_000)):
        if node.broker.listeners.connection_count <= left:
            return
        await trio.sleep(pause)


async def log_in(node: RunningNode) -> list[bytes]:
    """An honest client's whole exchange: what it has said."""
    client: Client = await node.connect()
    assert (await client.call(SaslHandshakeRequest(mechanism=MECHANISM), 1)).error_code == 0
    exchange, said, answer = sasl.begin(MECHANISM, "alice", "wonder"), [], b""
    while message := exchange.step(answer):
        said.append(message)
        reply = await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)
        assert reply.error_code == 0
        answer = bytes(reply.auth_bytes)
    assert (await client.call(MetadataRequest(topics=[]), 12)).brokers
    return said


@pytest.mark.frozen_clock
async def test_who_takes_for_ever_is_sent_away_and_keeps_nobody_out(
    serve_node: Callable[..., Any], mock_clock: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow-loris: silent, in the middle of a frame, of a mechanism and of TLS, with a byte now and then."""
    authority = make_authority("CA")
    pair = issue(authority, "broker", [HOST])
    settings = {
        "listeners": f"SASL_PLAINTEXT://{HOST}:0,SSL://{HOST}:0",
        "inter.broker.listener.name": "SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ssl.keystore.key": pair.key.decode(),
        "ssl.keystore.certificate.chain": pair.certificate.decode(),
    }
    frame = build_request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "x" * 200)
    hello = bytes.fromhex("16030100f8010000f40303") + bytes(200)
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(closed_log, "LINES_PER_WINDOW", 1000)
    async with serve_node(settings) as node:
        made = credential("alice", "wonder", MECHANISM)
        upsertion = ScramUpsertion("alice", made.mechanism, made.iterations, made.salt, made.salted_password)
        await node.broker.controller.alter_scram_credentials([], [upsertion])
        slow: list[tuple[Client, bytes]] = []
        for listener, text in (("SASL_PLAINTEXT", b""), ("SASL_PLAINTEXT", frame), ("SSL", b""), ("SSL", hello)):
            for _ in range(10):
                client = await node.connect(listener)
                await client.stream.send_all(text[:10])
                slow.append((client, text))
        for _ in range(10):
            client = await node.connect()
            await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            slow.append((client, frame))
        for second in range(3):
            mock_clock.jump(9.9)
            for client, text in slow:
                await client.stream.send_all(text[10 + second : 11 + second])
            assert await log_in(node)
        assert node.broker.listeners is not None
        assert node.broker.listeners.connection_count == len(node.clients)
        mock_clock.jump(0.4)
        with trio.fail_after(20):
            for client, _ in slow:
                assert await client.is_closed()
    assert caplog.text.count("it has not authenticated within 30 s") == 30
    assert caplog.text.count("its TLS handshake has not ended within 30 s") == 20


@pytest.mark.parametrize(
    ("asked", "frame", "is_taken"),
    [
        ((ApiKey.SASL_HANDSHAKE, 1), b"\0\0\0\1\0\x21\0\0\0\0", True),
        ((ApiKey.SASL_HANDSHAKE, 1), b"\0\0\0\2\0\x21\0\0\0\0", False),
        ((ApiKey.SASL_HANDSHAKE, 1), b"\0\0\0\1\0\x21\0\0\0", False),
        ((ApiKey.SASL_HANDSHAKE, 1), b"\0\0\0\1\0\x21\0\0\0\0\0", False),
        ((ApiKey.SASL_AUTHENTICATE, 0), b"\0\0\0\1\0\0\xff\xff\0\0\0\2r=", True),
        ((ApiKey.SASL_AUTHENTICATE, 0), b"\0\0\0\1\0\0\xff\xff\0\0\0\0", False),
        ((ApiKey.SASL_AUTHENTICATE, 0), b"\0\0\0\1\0\0\xff\xff\0\0\0\2v=", False),
        ((ApiKey.LIST_GROUPS, 0), b"\0\0\0\1\0\0\0\0\0\0", False),
    ],
)
def test_what_strangers_may_be_answered(asked: tuple[ApiKey, int], frame: bytes, is_taken: bool) -> None:
    """The judge of those conversations takes no answer that it cannot read, that nobody asked for, or that lets in."""
    conversation = Conversation(memory_stream_pair()[0], random.Random(1), [], {1: asked})
    if is_taken:
        assert conversation.judged(frame)[0] == 1
    else:
        with pytest.raises(ViolationError):
            conversation.judged(frame)
