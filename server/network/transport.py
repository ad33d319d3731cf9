"""A connected byte stream as connections need it, and the TCP socket behind it.

The operations themselves never wait: a connection tries first and waits only when it has to, so that a busy one costs
no scheduling, and an idle one holds no buffer while it waits.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

if TYPE_CHECKING:
    from ottla.kproto.codec import Buffer
    from ottla.storage.reading.file_range import FileRange

# Not every system tells of a peer that sends nothing more and may still receive; such a one is taken to be there.
_CLOSED: Final = select.POLLERR | select.POLLHUP | getattr(select, "POLLRDHUP", 0)

# Not every system can hold bytes back for those that follow.
_MORE: Final = getattr(socket, "MSG_MORE", 0)


class FileSender(Protocol):
    """Sends parts of files to a stream without reading them. BlockingIOError if there is no room for any of it."""

    def send_before(self, views: Sequence[Buffer]) -> int:
        """`Transport.send` of what a part of a file follows at once, so that both may go into one packet."""
        ...

    def send(self, part: FileRange, offset: int, length: int) -> int:
        """`FileRange.send` to the stream."""
        ...


class Transport(Protocol):
    """One end of a stream. Every method but the handshake and the two waits returns at once."""

    @property
    def files(self) -> FileSender | None:
        """The sender of parts of files; None where all that is sent has to be in memory."""
        ...

    async def handshake(self) -> None:
        """Agree on how to encrypt, before anything else. Raises CloseConnectionError or OSError."""

    @property
    def peer_subject(self) -> Any:
        """The subject of the peer's certificate as ssl.getpeercert has it; None without one."""

    @property
    def descriptor(self) -> int | None:
        """The descriptor for epoll, valid until `close`; None where it does not show whether there are bytes."""

    def receive_into(self, buffer: memoryview) -> int:
        """Fill the front of `buffer`; 0 is the end of the stream. BlockingIOError if nothing is there yet."""
        ...

    def send(self, views: Sequence[Buffer]) -> int:
        """Send a prefix of the views, at most 1,024 of them. BlockingIOError if there is no room for any."""
        ...

    async def wait_readable(self) -> None: ...

    async def wait_writable(self) -> None: ...

    @property
    def has_lost_peer(self) -> bool:
        """Whether the peer has closed its end, or the connection is broken, whatever is left to receive."""
        ...

    def shut_down(self, how: int) -> None:
        """Shut one or both directions down (socket.SHUT_RD, SHUT_RDWR), which wakes the task that waits here."""
        ...

    def close(self) -> None: ...


def has_peer_closed(connected: socket.socket) -> bool:
    """Whether nothing more will come than what has come, as far as this machine knows. Never waits."""
    poll = select.poll()
    poll.register(connected, _CLOSED)
    return bool(poll.poll(0))


class _SocketFiles:
    """Implements FileSender by the kernel."""

    __slots__ = ("_socket",)

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send_before(self, views: Sequence[Buffer]) -> int:
        return self._socket.sendmsg(views, (), _MORE)

    def send(self, part: FileRange, offset: int, length: int) -> int:
        return part.send(self._socket.fileno(), offset, length)


class SocketTransport:
    """A TCP connection without Nagle's delay."""

    __slots__ = ("_socket", "descriptor", "files", "receive_into", "send")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self.descriptor: int | None = connected.fileno()
        self.receive_into = connected.recv_into
        self.send = connected.sendmsg
        self.files: FileSender | None = _SocketFiles(connected)

    async def handshake(self) -> None:
        """Nothing is encrypted."""

    @property
    def peer_subject(self) -> None:
        return None

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self._socket)

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    @property
    def has_lost_peer(self) -> bool:
        return has_peer_closed(self._socket)

    def shut_down(self, how: int) -> None:
        try:
            self._socket.shutdown(how)
        except OSError:
            return  # the peer was faster

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
