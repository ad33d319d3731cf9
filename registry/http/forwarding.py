"""Sends a request that changes something to the registry that writes, as Confluent's instances do among themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

import h11
import trio

from ottla.registry.errors import forwarding_failed
from ottla.registry.http.access import PRINCIPAL, Caller
from ottla.registry.writer.identity import Identity

HEADER: Final = "x-forward"
"""Says `false` in a request that has been forwarded: its receiver does not forward it again."""

_TIMEOUT_SECONDS: Final = 30.0
_MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
_RECEIVE_BYTES: Final = 65_536
_PASSED_ON: Final = frozenset({"content-type", "accept", "authorization"})

OpenStream = Callable[[Identity], Awaitable[trio.abc.Stream]]
"""Connects to another instance. Raises OSError."""


class Answer(NamedTuple):
    """The answer of the other instance."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class UnreachableWriterError(Exception):
    """Nothing was sent: another one may write by now."""


async def open_plain(identity: Identity) -> trio.abc.Stream:
    """Connect without TLS, or with the system's certificates."""
    stream = await trio.open_tcp_stream(identity.host, identity.port)
    if identity.scheme != "https":
        return stream
    import ssl

    from ottla.client.trio_connection import encrypt

    return await encrypt(stream, ssl.create_default_context(), identity.host)


def passed_on(headers: Mapping[str, str], caller: Caller) -> list[tuple[str, str]]:
    """The headers of a forwarded request: some of the client's, and its principal."""
    passed = [(name, value) for name, value in headers.items() if name in _PASSED_ON]
    return passed if caller.forwarded_as is None else [*passed, (PRINCIPAL, caller.forwarded_as)]


async def forward(
    open_stream: OpenStream,
    writer: Identity,
    method: str,
    target: bytes,
    headers: Iterable[tuple[str, str]],
    body: bytes,
) -> Answer:
    """Send a request to the registry that writes. Raises UnreachableWriterError, or RegistryError 50003 if it is not
    known what became of it.
    """
    passed = [*headers, ("host", f"{writer.host}:{writer.port}"), (HEADER, "false"), ("content-length", str(len(body)))]
    request = h11.Request(method=method, target=target, headers=[*passed, ("connection", "close")])
    with trio.move_on_after(_TIMEOUT_SECONDS):
        try:
            stream = await open_stream(writer)
        except OSError as error:
            raise UnreachableWriterError(f"{writer.url}: {error}") from None
        try:
            async with stream:
                return await _exchange(stream, request, body)
        except (OSError, trio.BrokenResourceError, h11.ProtocolError) as error:
            raise forwarding_failed(f"{writer.url} has not answered: {error}") from None
    raise forwarding_failed(f"{writer.url} has not answered in time")


async def _exchange(stream: trio.abc.Stream, request: h11.Request, body: bytes) -> Answer:
    connection = h11.Connection(h11.CLIENT)
    for part in (request, h11.Data(data=body), h11.EndOfMessage()):
        await stream.send_all(connection.send(part) or b"")
    status, size_bytes = 0, 0
    headers: list[tuple[bytes, bytes]] = []
    parts: list[bytes] = []
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_RECEIVE_BYTES)))
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = [(name, value) for name, value in event.headers if name in (b"content-type", b"www-authenticate")]
        elif isinstance(event, h11.Data):
            size_bytes += len(event.data)
            if size_bytes > _MAX_ANSWER_BYTES:
                raise h11.RemoteProtocolError("an answer of more bytes than are taken")
            parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return Answer(status, headers, b"".join(parts))
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the connection was closed early")
