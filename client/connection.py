"""One blocking connection to a broker: one request at a time, or several whose answers are taken in order.

Each API is used in the highest version that both sides know.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from ottla.client.errors import ClientError
from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ProtocolError
from ottla.kproto.messages.api_versions import ApiVersionsRequest
from ottla.kproto.schema import Request

CLIENT_ID: Final = "ottla-client"
_MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024


def parse_address(text: str) -> tuple[str, int]:
    """`host`, `host:port`, `[v6]:port`; the default port is 9092."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "9092"
    try:
        return host.strip("[]"), int(port)
    except ValueError:
        raise ClientError(f"{text!r} is not an address: write host:port") from None


class BrokerConnection:
    """One connection. `call` sends a request and waits for its answer."""

    def __init__(self, host: str, port: int, timeout_seconds: float, client_id: str = CLIENT_ID) -> None:
        self._client_id = client_id
        self.address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_seconds)
        except OSError as error:
            raise ClientError(
                f"no broker answers at {self.address} ({error.strerror or error}): "
                "is it running? Name another with --bootstrap host:port"
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        answer = self._exchange(ApiVersionsRequest(), 0)
        self._versions: dict[int, tuple[int, int]] = {
            api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
        }

    def version(self, key: ApiKey, at_most: int = 32767) -> int:
        """The highest version of an API that both sides know; ClientError if there is none."""
        lowest, highest = self._versions.get(key, (0, -1))
        version = min(highest, key.valid_versions.highest, at_most)
        if version < max(lowest, key.valid_versions.lowest):
            raise ClientError(f"the broker at {self.address} does not serve {key.name} in a version known here")
        return version

    def call(self, request: Request, *, at_most: int = 32767) -> Any:
        """The answer to a request in the highest common version."""
        return self._exchange(request, self.version(request.API_KEY, at_most))

    def send(self, request: Request, *, at_most: int = 32767) -> int:
        """Send a request whose answer is taken later with `receive`; returns the version that was used."""
        version = self.version(request.API_KEY, at_most)
        self._send(request, version)
        return version

    def receive(self, key: ApiKey, version: int) -> Any:
        """The next answer, in the order of the requests."""
        try:
            (size_bytes,) = struct.unpack(">i", self._receive(4))
            if not 4 <= size_bytes <= _MAX_RESPONSE_BYTES:
                raise ClientError(f"{self.address} does not speak Kafka's protocol: check the port")
            frame = self._receive(size_bytes)
        except TimeoutError:
            raise ClientError(f"the broker at {self.address} did not answer {key.name} in time") from None
        except OSError as error:
            raise ClientError(f"the connection to {self.address} ended: {error.strerror or error}") from None
        try:
            _, body_start = headers.parse_response_header(key, version, frame)
            return codec.parse_response(key, version, frame, body_start)
        except ProtocolError as error:
            raise ClientError(f"{self.address} answered {key.name} with what is no answer: {error}") from None

    def close(self) -> None:
        self._socket.close()

    def _exchange(self, request: Request, version: int) -> Any:
        self._send(request, version)
        return self.receive(request.API_KEY, version)

    def _send(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        header = headers.build_request_header(request.API_KEY, version, self._correlation_id, self._client_id)
        parts = codec.build_parts(request, version)
        size_bytes = len(header) + sum(len(part) for part in parts)
        try:
            self._socket.sendall(struct.pack(">i", size_bytes) + header + b"".join(parts))
        except OSError as error:
            raise ClientError(f"the connection to {self.address} ended: {error.strerror or error}") from None

    def _receive(self, size_bytes: int) -> bytes:
        data = bytearray(size_bytes)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise ClientError(f"the broker at {self.address} closed the connection: see its log")
            view = view[count:]
        return bytes(data)
