"""One blocking connection to a broker: one request at a time, or several whose answers are taken in order."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    RequestTimedOutError,
    UnreachableError,
)
from ottla.client.protocol import MAX_ANSWER_BYTES, Answer, ClientProtocol, State
from ottla.client.security import NO_SECURITY, Security
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.versions import OPEN_END

if TYPE_CHECKING:
    from ottla.client.tls import Tls
    from ottla.kproto.schema import Request
    from ottla.kproto.types import Buffer

CLIENT_ID: Final = "ottla-client"
#: After this part of a session's life a new one is begun, as Kafka's clients do.
_SESSION_SHARE: Final = 0.85
_COPIED_BYTES: Final = 64 * 1024


class BrokerConnection:
    """One connection, for one thread. Every failure is a ClientError; after a ConnectionLostError it is closed.

    Each API is used in the highest version that both sides know. `timeout_seconds` bounds the connecting and each wait
    for the broker; `answer_timeout_seconds`, if it is given, the waits alone. A `receive_buffer_bytes` of 0 leaves the
    socket's buffer to the system.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_seconds: float,
        client_id: str = CLIENT_ID,
        *,
        answer_timeout_seconds: float | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        receive_buffer_bytes: int = 0,
        security: Security = NO_SECURITY,
    ) -> None:
        self.address = f"{host}:{port}"
        self._protocol = ClientProtocol(
            self.address, client_id, max_answer_bytes=max_answer_bytes, login=security.login
        )
        self._answers: deque[Answer] = deque()
        try:
            self._socket = socket.create_connection((host, port), timeout_seconds)
        except OSError as error:
            raise UnreachableError(self.address, error.strerror or error) from None
        if security.tls is not None:
            self._socket = _encrypted(self._socket, host, security.tls, self.address)
        self._socket.settimeout(answer_timeout_seconds or timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._login_ends_at = inf
        self._protocol.start()
        self._negotiate(ApiKey.API_VERSIONS)

    def version(self, key: ApiKey, at_most: int = OPEN_END) -> int:
        """The highest version of an API that both sides know; UnsupportedVersionError if there is none."""
        return self._protocol.version(key, at_most)

    def call(self, request: Request, *, at_most: int = OPEN_END) -> Any:
        """The answer to a request in the highest common version; nothing else may be in flight."""
        self.send(request, at_most=at_most)
        return self.receive()

    def send(self, request: Request, *, at_most: int = OPEN_END) -> None:
        """Send a request whose answer is taken later with `receive`."""
        if time.monotonic() > self._login_ends_at and not self._protocol.in_flight and not self._answers:
            self._protocol.authenticate_again()
            self._negotiate(ApiKey.SASL_HANDSHAKE)
        self._protocol.send(request, at_most=at_most)
        self._flush(request.API_KEY)

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet. Record batches in it are views of its own buffer."""
        while not self._answers:
            self._receive()
        try:
            return self._protocol.parse(self._answers.popleft())
        except ClientError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the socket; a second call does no harm."""
        self._protocol.lose(ConnectionLostError(f"the connection to {self.address} is closed"))
        self._socket.close()

    def _negotiate(self, key: ApiKey) -> None:
        while self._protocol.state is not State.OPEN:
            self._flush(key)
            self._receive()
        if self._protocol.session_lifetime_ms:
            self._login_ends_at = time.monotonic() + _SESSION_SHARE * self._protocol.session_lifetime_ms / 1000

    def _flush(self, key: ApiKey) -> None:
        try:
            for data in _joined(self._protocol.data_to_send()):
                self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error, key) from None

    def _receive(self) -> None:
        in_flight = self._protocol.in_flight
        assert in_flight, "nothing was asked for"
        try:
            count = self._socket.recv_into(self._protocol.buffer())
            self._answers += self._protocol.received(count)
        except OSError as error:
            raise self._lost(error, in_flight[0].key) from None
        except ClientError:
            self.close()
            raise

    def _lost(self, error: OSError, key: ApiKey) -> ClientError:
        lost: ClientError = ConnectionLostError(f"the connection to {self.address} ended: {error.strerror or error}")
        if isinstance(error, TimeoutError):
            lost = RequestTimedOutError(f"the broker at {self.address} did not answer {key.kafka_name} in time")
        lost = self._protocol.lose(lost)
        self._socket.close()
        return lost


def _encrypted(connected: socket.socket, host: str, tls: Tls, address: str) -> socket.socket:
    import ssl

    from ottla.client.tls import context_of

    try:
        return context_of(tls).wrap_socket(connected, server_hostname=host)
    except BaseException as error:
        connected.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message
            raise AuthenticationError(f"the certificate of the broker at {address} is not trusted: {why}") from None
        if isinstance(error, OSError):
            why = (getattr(error, "reason", None) or error.strerror or "it hung up").lower().replace("_", " ")
            raise ConnectionLostError(f"no TLS connection to {address}: {why}") from None
        raise


def _joined(parts: Iterable[Buffer]) -> list[Buffer]:
    """The same bytes in fewer pieces: small ones are copied together, large ones are left as they are."""
    joined: list[Buffer] = []
    small = bytearray()
    for part in parts:
        if len(part) > _COPIED_BYTES:
            if small:
                joined.append(small)
                small = bytearray()
            joined.append(part)
        else:
            small += part
    if small:
        joined.append(small)
    return joined
