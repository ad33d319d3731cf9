"""A connected byte stream as the proxy needs it, and the TCP socket behind it.

This is the seam for TLS and SASL: `ottla.proxy.shared.Ways` make transports, which are read and written as plain
bytes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from ottla.client.keepalive import keepalive_options
from ottla.proxy.login import ANONYMOUS, ClientLogin

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer

# One send copies at memory speed: this much stays well under the 500 µs for which the loop may be held.
_MAX_SEND_BYTES: Final = 256 * 1024
_MAX_SEND_VIEWS: Final = 1024
# A wake-up costs about as much as forwarding this.
_WORTH_WAITING_BYTES: Final = 64 * 1024
# Less than a peer sends ahead of acknowledgements: Kafka stops at twice its `socket.send.buffer.bytes` of 100 KiB, and
# waiting for more would mean waiting for a timer.
_AWAITED_BYTES: Final = 128 * 1024
# What the peer may send while what has come is forwarded. Linux makes room for twice what is waited for, and leaves it.
_WINDOW_BYTES: Final = 4 * 1024 * 1024
# A peer that has vanished without a FIN is noticed after about two minutes.
_KEEPALIVE: Final = keepalive_options(idle_s=60, interval_s=20, count=3)


class Transport(Protocol):
    """One end of a stream. Every method but the two waits returns at once."""

    def receive_into(self, buffer: memoryview) -> int:
        """Fill the front of `buffer`; 0 means the end of the stream. Raises BlockingIOError if nothing is there yet."""
        ...

    def send(self, views: Sequence[Buffer]) -> int:
        """Send a prefix of the views. Raises BlockingIOError if there is no room for any of it."""
        ...

    async def wait_readable(self) -> None: ...

    def expect(self, size_bytes: int) -> None:
        """This much is sure to come: `wait_readable` may wait until it, or a good part of it, has arrived. 0: do not
        wait.
        """
        ...

    async def wait_writable(self) -> None: ...

    def local_host(self) -> str:
        """The address of this end."""
        ...

    def close(self) -> None: ...


class Accepted(NamedTuple):
    """A client: its transport, its principal by certificate, and its login if the proxy requires one."""

    transport: Transport
    principal: str = ANONYMOUS
    login: ClientLogin | None = None


class SocketTransport:
    """A TCP connection without Nagle's delay."""

    __slots__ = ("_expected_bytes", "_is_wide", "_socket", "receive_into", "send")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in _KEEPALIVE:
            connected.setsockopt(*option)
        self._socket = connected
        self._expected_bytes = 1
        self._is_wide = False  # whether the peer may send ahead
        self.receive_into = connected.recv_into
        self.send = connected.sendmsg

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self._socket)

    def expect(self, size_bytes: int) -> None:
        expected = min(size_bytes, _AWAITED_BYTES) if size_bytes >= _WORTH_WAITING_BYTES else 1
        if expected == self._expected_bytes:
            return
        if expected > 1 and not self._is_wide:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _WINDOW_BYTES)
            self._is_wide = True
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, expected)
        self._expected_bytes = expected

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    def local_host(self) -> str:
        return unmapped(self._socket.getsockname()[0])

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


def unmapped(host: str) -> str:
    """An address in its own family: a socket for both families reports IPv4 peers as IPv6."""
    return host.removeprefix("::ffff:") if "." in host else host


async def open_tcp(host: str, port: int) -> socket.socket:
    """Connect as Trio does, with all addresses of the host in turn."""
    stream = await trio.open_tcp_stream(host, port)
    return socket.socket(fileno=stream.socket.detach())


async def connect_tcp(host: str, port: int) -> Transport:
    """A connection without TLS."""
    return SocketTransport(await open_tcp(host, port))


async def accept_tcp(accepted: socket.socket) -> Accepted:
    """The socket as it is."""
    return Accepted(SocketTransport(accepted))


async def send_all(sink: Transport, parts: Sequence[Buffer], moved: Callable[[], None] | None = None) -> None:
    """Send everything, and call `moved` whenever something was sent. Lets others run after each large piece."""
    views = [memoryview(part) for part in parts if len(part)]
    while views:
        some = views[0] if len(views[0]) <= _MAX_SEND_BYTES else views[0][:_MAX_SEND_BYTES]
        try:
            sent = sink.send([some, *views[1:_MAX_SEND_VIEWS]] if len(some) == len(views[0]) else [some])
        except BlockingIOError:
            await sink.wait_writable()
            continue
        if moved is not None:
            moved()
        while views and sent >= len(views[0]):
            sent -= len(views.pop(0))
        if sent:
            views[0] = views[0][sent:]
        if views:
            await trio.lowlevel.checkpoint()
