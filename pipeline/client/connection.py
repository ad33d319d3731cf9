"""One blocking connection to one broker: requests go out, answers come back in the same order."""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from typing import Any, Final

from ottla.kproto import codec, framing, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode, ProtocolError
from ottla.kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.kproto.schema import Request
from ottla.kproto.versions import NO_VERSIONS, VersionRange
from ottla.pipeline.client.settings import ClientSettings

__all__ = ["Connection", "ConnectionLostError", "UnsupportedBrokerError"]

# Fetch and Produce stay below 13, and Metadata at 12, because topics are named here, not identified.
_WANTED: Final = {
    ApiKey.PRODUCE: VersionRange(3, 12),
    ApiKey.INIT_PRODUCER_ID: VersionRange(0, 4),
    ApiKey.FETCH: VersionRange(4, 12),
    ApiKey.LIST_OFFSETS: VersionRange(2, 7),
    ApiKey.METADATA: VersionRange(4, 12),
}
# Above any batch that brokers take; below what four letters of another protocol would mean as a length.
_MAX_FRAME_BYTES: Final = 1 << 30
_MAX_FIRST_FRAME_BYTES: Final = 1 << 20
_SLACK_S: Final = 5.0


class ConnectionLostError(Exception):
    """The broker could not be reached, hung up, was silent for too long, or does not speak the protocol."""


class UnsupportedBrokerError(ConnectionLostError):
    """The broker serves no version of an API that this client knows."""


class Connection:
    """Sends requests and receives their answers, several in flight if the caller sends before it receives.

    Every failure is ConnectionLostError, after which the connection is of no more use.
    """

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        self.name = f"{host}:{port}"
        self._client_id = settings.client_id
        self._correlation_id = 0
        self._in_flight: deque[tuple[int, ApiKey, int]] = deque()
        self._versions: dict[int, VersionRange] = {}
        timeout_s = settings.request_timeout_ms / 1000
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise ConnectionLostError(f"{self.name}: {error}") from error
        try:
            # A fetch may wait for its own time before it is answered.
            self._socket.settimeout(timeout_s + settings.fetch_max_wait_ms / 1000 + _SLACK_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.receive_buffer_bytes:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
            self._negotiate()
        except OSError as error:
            self.close()
            raise ConnectionLostError(f"{self.name}: {error}") from error
        except ConnectionLostError:
            self.close()
            raise

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def call(self, request: Request) -> Any:
        """Send a request and wait for its answer; nothing else may be in flight."""
        self.send(request)
        return self.receive()

    def send(self, request: Request) -> None:
        """Send a request in the newest version that both sides know."""
        self._send(request, self._version(request.API_KEY))

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet. Record batches in it are views of its own buffer."""
        correlation_id, key, version = self._in_flight.popleft()
        try:
            frame = self._read(framing.frame_size(self._read(framing.PREFIX_SIZE), _MAX_FRAME_BYTES))
            header, body_pos = headers.parse_response_header(key, version, frame)
            if header.correlation_id != correlation_id:
                raise ConnectionLostError(f"{self.name} answered request {header.correlation_id}, not {correlation_id}")
            return codec.parse_response(key, version, frame, body_pos)
        except (OSError, ProtocolError) as error:
            raise ConnectionLostError(f"{self.name}: {error or type(error).__name__}") from error

    def _send(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        head = headers.build_request_header(request.API_KEY, version, self._correlation_id, self._client_id)
        body = head + codec.build_request(request, version)
        try:
            self._socket.sendall(framing.frame_prefix(len(body)) + body)
        except OSError as error:
            raise ConnectionLostError(f"{self.name}: {error}") from error
        self._in_flight.append((self._correlation_id, request.API_KEY, version))

    def _negotiate(self) -> None:
        """Learn what the broker serves; one that knows no version 3 answers with version 0 and says so."""
        answer = self._api_versions(3)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._api_versions(0)
        if answer.error_code:
            raise UnsupportedBrokerError(f"{self.name} answers ApiVersions with {_name(answer.error_code)}")
        self._versions = {api.api_key: VersionRange(api.min_version, api.max_version) for api in answer.api_keys}

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="ottla-spark", client_software_version="1")
        self._send(request, version)
        correlation_id, key, _ = self._in_flight.popleft()
        try:
            frame = self._read(framing.frame_size(self._read(framing.PREFIX_SIZE), _MAX_FIRST_FRAME_BYTES))
            header, pos = headers.parse_response_header(key, version, frame)
            if header.correlation_id != correlation_id:
                raise ConnectionLostError(f"{self.name} answered another request")
            is_old = version > 0 and int.from_bytes(frame[pos : pos + 2], "big") == ErrorCode.UNSUPPORTED_VERSION
            answer, _ = codec.parse_prefix(ApiVersionsResponse, 0 if is_old else version, frame, pos)
        except ProtocolError as error:
            raise ConnectionLostError(f"{self.name} does not speak Kafka's protocol: {error}") from error
        return answer

    def _version(self, key: ApiKey) -> int:
        wanted = _WANTED[key]
        common = wanted.intersection(self._versions.get(key, NO_VERSIONS))
        if common == NO_VERSIONS:
            served = self._versions.get(key, NO_VERSIONS)
            raise UnsupportedBrokerError(f"{self.name} serves {key.name} {served}, needed is one of {wanted}")
        return common.highest

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            received = self._socket.recv_into(view)
            if not received:
                raise ConnectionLostError(f"{self.name} closed the connection")
            view = view[received:]
        return data


def _name(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
