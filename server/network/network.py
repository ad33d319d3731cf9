"""How a node listens and connects: over TCP, unless something else is put in its place, as a simulation does."""

from __future__ import annotations

import errno
import socket
from collections.abc import Set
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from ottla.runtime.errors import ListenError
from ottla.runtime.pacing import Pacing
from ottla.server.network.transport import SocketTransport

if TYPE_CHECKING:
    import ssl

    from ottla.server.network.transport import Transport


class Accepted(Protocol):
    """A connection that has come, before anything is done with it."""

    def open(self, tls: ssl.SSLContext | None) -> Transport:
        """The connection's transport, encrypted if there is a context. OSError if the peer has gone."""
        ...

    def close(self) -> None:
        """End it instead."""


class Listening(Protocol):
    """An address that is listened at."""

    @property
    def port(self) -> int: ...

    async def wait(self) -> None:
        """Return when somebody may have come."""

    def accept(self) -> tuple[Accepted, tuple[str, int]]:
        """The next connection, with its peer's host and port. BlockingIOError if there is none, else as accept(2)."""
        ...

    def close(self) -> None: ...


class SocketBuffers(NamedTuple):
    """What the kernel holds for each connection, in bytes; -1 leaves it to the system."""

    send_bytes: int = -1
    receive_bytes: int = -1

    def set_on(self, listening: socket.socket) -> None:
        """For the sockets that are accepted, which inherit it."""
        for option, size_bytes in ((socket.SO_SNDBUF, self.send_bytes), (socket.SO_RCVBUF, self.receive_bytes)):
            if size_bytes >= 0:
                listening.setsockopt(socket.SOL_SOCKET, option, size_bytes)


SYSTEMS_BUFFERS: Final = SocketBuffers()


class Network(Protocol):
    """A node's way to its clients and to the other brokers."""

    def listen(
        self, host: str, port: int, backlog: int, flag: str, *, buffers: SocketBuffers = SYSTEMS_BUFFERS
    ) -> Listening:
        """Listen on an address, '' for all of them; StartupError, which names the flag, if it cannot be had."""
        ...

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """A connection without encryption. OSError if there is none."""
        ...

    async def look_up(self, host: str) -> Set[str]:
        """The addresses of a host, as those of its connections are told; OSError if it is not known. A name server may
        take its time."""
        ...


class TcpNetwork:
    """The machine's network."""

    def listen(
        self, host: str, port: int, backlog: int, flag: str, *, buffers: SocketBuffers = SYSTEMS_BUFFERS
    ) -> Listening:
        listening = open_listening_socket(host, port, backlog, flag)
        buffers.set_on(listening)
        return _ListeningSocket(listening)

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        return await trio.open_tcp_stream(host, port)

    async def look_up(self, host: str) -> Set[str]:
        # The call cannot be interrupted: a cancelled caller leaves its thread behind, which ends by itself.
        try:
            found = await trio.to_thread.run_sync(socket.getaddrinfo, host, None, abandon_on_cancel=True)
        except ValueError as error:  # it cannot be a name
            raise OSError(errno.EINVAL, str(error)) from None
        return {str(info[4][0]) for info in found}


class _ListeningSocket:
    __slots__ = ("_pacing", "_socket")

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._pacing = Pacing(listening)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def wait(self) -> None:
        await trio.lowlevel.wait_readable(self._socket)

    def accept(self) -> tuple[Accepted, tuple[str, int]]:
        accepted, peer = self._socket.accept()
        self._pacing.begin(accepted)
        return _AcceptedSocket(accepted), peer[:2]

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


class _AcceptedSocket:
    __slots__ = ("_socket",)

    def __init__(self, accepted: socket.socket) -> None:
        self._socket = accepted

    def open(self, tls: ssl.SSLContext | None) -> Transport:
        if tls is None:
            return SocketTransport(self._socket)
        from ottla.server.network.tls_transport import TlsTransport

        return TlsTransport(self._socket, tls)

    def close(self) -> None:
        self._socket.close()


def open_listening_socket(host: str, port: int, backlog: int, flag: str) -> socket.socket:
    """A socket that listens at an address, '' for all; ListenError, which names the flag, if it cannot be had."""
    where = f"{host or '*'}:{port}"
    try:
        family, kind, protocol, _, sockaddr = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ListenError(where, str(error.strerror), f"choose another address with {flag}") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
        listening.bind(sockaddr)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        is_taken = error.errno == errno.EADDRINUSE
        raise ListenError(where, str(error.strerror), _advice(error.errno, flag), is_taken=is_taken) from None
    return listening


def _advice(reason: int | None, flag: str) -> str:
    if reason == errno.EADDRINUSE:
        return f"is another broker running there? Choose another with {flag}"
    if reason == errno.EACCES:
        return (
            f"this user may not use that port: choose one from 1024 with {flag}, or grant the right to it: "
            "AmbientCapabilities=CAP_NET_BIND_SERVICE in a systemd unit"
        )
    return f"choose an address of this machine with {flag}"
