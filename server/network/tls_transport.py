"""A connected byte stream that is encrypted.

OpenSSL works on the socket itself, so that what is received is decrypted into the buffer where it is parsed. Single
records of 16 KiB take some microseconds and are done on the event loop; the handshake, which signs, in a worker thread.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.runtime.errors import CloseConnectionError
from ottla.server.network.transport import has_peer_closed

if TYPE_CHECKING:
    from ottla.kproto.codec import Buffer

_RECORD_BYTES: Final = 16 * 1024
#: What one call takes: encrypting and copying it stays well under 500 µs.
_MAX_CALL_BYTES: Final = 8 * _RECORD_BYTES
_MAX_HANDSHAKES: Final = 2
_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("TLS handshakes")


class _Step(Enum):
    """The next wait of a handshake."""

    DONE = auto()
    READ = auto()
    WRITE = auto()


class TlsTransport:
    """TLS over a TCP connection without Nagle's delay; nothing may be sent or received before `handshake`.

    It is the server's side of it, unless `server_name` says which server the client expects to meet.
    """

    __slots__ = ("_server_name", "_socket", "_unsent")

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, *, server_name: str | None = None) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server_name = server_name
        self._socket = context.wrap_socket(
            connected, server_side=server_name is None, server_hostname=server_name, do_handshake_on_connect=False
        )
        # What OpenSSL has taken and could not write: it wants the same bytes again.
        self._unsent: Buffer | None = None

    async def handshake(self) -> None:
        """Agree on keys. Raises CloseConnectionError, and OSError if the peer is gone."""
        try:
            limiter = _limiter.get()
        except LookupError:
            limiter = trio.CapacityLimiter(_MAX_HANDSHAKES)
            _limiter.set(limiter)
        while True:
            try:
                step = await trio.to_thread.run_sync(self._shake, limiter=limiter)
            except ssl.SSLError as error:
                why = _why(error) if self._server_name is None else _why_as_client(error)
                raise CloseConnectionError(f"the TLS handshake failed: {why}") from None
            if step is _Step.DONE:
                return
            if step is _Step.READ:
                await trio.lowlevel.wait_readable(self._socket)
            else:
                await trio.lowlevel.wait_writable(self._socket)

    def _shake(self) -> _Step:
        """Go on with the handshake as far as possible. (An exception that crosses threads leaves garbage.)"""
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return _Step.READ
        except ssl.SSLWantWriteError:
            return _Step.WRITE
        return _Step.DONE

    @property
    def peer_subject(self) -> Any:
        """The subject of the client's certificate as ssl.getpeercert has it; None if it has shown none."""
        certificate = self._socket.getpeercert()
        return certificate.get("subject") if certificate else None

    @property
    def descriptor(self) -> None:
        """None: bytes that OpenSSL has decrypted already are no longer in the socket."""

    def receive_into(self, buffer: memoryview) -> int:
        """See `Transport.receive_into`."""
        received = 0
        limit = min(len(buffer), _MAX_CALL_BYTES)
        while received < limit:
            try:
                count = self._socket.recv_into(buffer[received:limit])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if received:
                    break
                raise BlockingIOError from None
            if not count:
                break  # the end, of which the next call tells once more
            received += count
        return received

    def send(self, views: Sequence[Buffer]) -> int:
        """See `Transport.send`."""
        sent = 0
        for piece in _records(views):
            try:
                count = self._socket.send(piece if self._unsent is None else self._unsent)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._unsent = piece if self._unsent is None else self._unsent
                if sent:
                    break
                raise BlockingIOError from None
            self._unsent = None
            sent += count
            if count != len(piece) or sent >= _MAX_CALL_BYTES:
                break
        return sent

    @property
    def files(self) -> None:
        """None: bytes in a file are not encrypted."""
        return None

    async def wait_readable(self) -> None:
        """See `Transport`. What is decrypted already is no longer in the socket."""
        if self._socket.pending():
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_readable(self._socket)

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    @property
    def has_lost_peer(self) -> bool:
        return has_peer_closed(self._socket)

    def shut_down(self, how: int) -> None:
        """See `Transport.shut_down`. SSLSocket's own would go on without encryption."""
        try:
            socket.socket.shutdown(self._socket, how)
        except OSError:
            return  # the peer was faster

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._socket)
        try:
            self._socket.unwrap()  # says goodbye, and does not wait for an answer
        except (OSError, ValueError):
            pass
        finally:
            self._socket.close()


def _records(views: Sequence[Buffer]) -> Any:
    """The bytes of the views in pieces of at most one record: small views together, large ones cut."""
    small = bytearray()
    for view in views:
        size_bytes = len(view)
        if len(small) + size_bytes <= _RECORD_BYTES:
            small += view
            continue
        if small:
            yield bytes(small)
            small = bytearray()
        rest = memoryview(view)
        while len(rest) > _RECORD_BYTES:
            yield rest[:_RECORD_BYTES]
            rest = rest[_RECORD_BYTES:]
        small += rest
    if small:
        yield bytes(small)


def _why_as_client(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "the server hung up"
    return (error.reason or "").lower().replace("_", " ") or "no reason is given"


def _why(error: ssl.SSLError) -> str:
    reason = (error.reason or "").upper()
    if reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return "the client does not speak TLS: use security.protocol=SSL or SASL_SSL"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client shows no certificate, which ssl.client.auth requires"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "the client hung up"
    return reason.lower().replace("_", " ") or "no reason is given"
