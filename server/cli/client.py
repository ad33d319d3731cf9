"""A small blocking client for the command line: one connection a broker, one request at a time.

It speaks to any Kafka broker: each API is used in the highest version that both sides know.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode, ProtocolError
from ottla.kproto.messages.api_versions import ApiVersionsRequest
from ottla.kproto.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.kproto.schema import Request
from ottla.server.cli import CommandError

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
CLIENT_ID: Final = "ottla-cli"
_MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024

T = TypeVar("T")


class BrokerError(CommandError):
    """A broker answered with an error code."""

    def __init__(self, code: int, message: str | None = None, *, what: str = "") -> None:
        try:
            known = ErrorCode(code)
            name, text = known.name, message or known.message
        except ValueError:
            name, text = f"error {code}", message or "an error that this client does not know"
        super().__init__(f"{what}: {text} ({name})" if what else f"{text} ({name})")
        self.code = code


def bootstrap_servers(given: str | None) -> list[tuple[str, int]]:
    """The addresses of `--bootstrap`, of OTTLA_BOOTSTRAP, or the default."""
    text = given or os.environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    return [parse_address(part.strip()) for part in text.split(",") if part.strip()]


def parse_address(text: str) -> tuple[str, int]:
    """`host`, `host:port`, `[v6]:port`; the default port is 9092."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "9092"
    try:
        return host.strip("[]"), int(port)
    except ValueError:
        raise CommandError(f"{text!r} is not an address: write host:port") from None


class BrokerConnection:
    """One connection. `call` sends a request and waits for its answer."""

    def __init__(self, host: str, port: int, timeout_seconds: float, client_id: str = CLIENT_ID) -> None:
        self._client_id = client_id
        self.address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_seconds)
        except OSError as error:
            raise CommandError(
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
        """The highest version of an API that both sides know; CommandError if there is none."""
        lowest, highest = self._versions.get(key, (0, -1))
        version = min(highest, key.valid_versions.highest, at_most)
        if version < max(lowest, key.valid_versions.lowest):
            raise CommandError(f"the broker at {self.address} does not serve {key.name} in a version known here")
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
                raise CommandError(f"{self.address} does not speak Kafka's protocol: check the port")
            frame = self._receive(size_bytes)
        except TimeoutError:
            raise CommandError(f"the broker at {self.address} did not answer {key.name} in time") from None
        except OSError as error:
            raise CommandError(f"the connection to {self.address} ended: {error.strerror or error}") from None
        try:
            _, body_start = headers.parse_response_header(key, version, frame)
            return codec.parse_response(key, version, frame, body_start)
        except ProtocolError as error:
            raise CommandError(f"{self.address} answered {key.name} with what is no answer: {error}") from None

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
            raise CommandError(f"the connection to {self.address} ended: {error.strerror or error}") from None

    def _receive(self, size_bytes: int) -> bytes:
        data = bytearray(size_bytes)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise CommandError(f"the broker at {self.address} closed the connection: see its log")
            view = view[count:]
        return bytes(data)


class Client:
    """A cluster as the command line needs it. Use as a context manager."""

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], timeout_seconds: float = 30, client_id: str = CLIENT_ID
    ) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._any: BrokerConnection | None = None
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._controller_id = -1

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def call(self, request: Request, *, at_most: int = 32767) -> Any:
        """Ask any broker."""
        return self.any_broker().call(request, at_most=at_most)

    def call_controller(self, request: Request) -> Any:
        """Ask the broker that Metadata names as controller."""
        self.metadata([])
        if self._controller_id not in self._addresses:
            return self.call(request)
        return self.broker(self._controller_id).call(request)

    def any_broker(self) -> BrokerConnection:
        """The first bootstrap address that answers."""
        if self._any is None:
            for index, address in enumerate(self._bootstrap):
                try:
                    self._any = self._connect(address)
                    break
                except CommandError:
                    if index == len(self._bootstrap) - 1:
                        raise
        assert self._any is not None
        return self._any

    def broker(self, node_id: int) -> BrokerConnection:
        """The broker with this id, as the last Metadata knows it."""
        address = self._addresses.get(node_id)
        if address is None:
            raise CommandError(f"there is no broker {node_id} in the cluster now: try again")
        return self._connect(address)

    def metadata(self, topics: Sequence[str] | None, *, create: bool = False) -> MetadataResponse:
        """Metadata of some topics, of none, or of all (None)."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response: MetadataResponse = self.call(MetadataRequest(topics=named, allow_auto_topic_creation=create))
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._controller_id = response.controller_id
        return response

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """Metadata of one topic; CommandError if it does not exist. `create` lets the broker create it."""
        for _ in range(20 if create else 1):
            (topic,) = self.metadata([name], create=create).topics
            usable = topic.error_code == ErrorCode.NONE and all(p.leader_id >= 0 for p in topic.partitions)
            if usable or (not create and topic.error_code == ErrorCode.NONE):
                return topic
            if create and topic.error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                import time

                time.sleep(0.1)
                continue
            break
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandError(self._no_topic(name))
        raise BrokerError(topic.error_code, what=f"topic {name}")

    def _no_topic(self, name: str) -> str:
        """That a topic does not exist, and what may have been meant."""
        from difflib import get_close_matches

        known = [topic.name or "" for topic in self.metadata(None).topics]
        nearest = get_close_matches(name, known, n=1)
        if nearest:
            return f"there is no topic {name!r}; did you mean {nearest[0]}? Or create it: `ottla topic create {name}`"
        return f"there is no topic {name!r}: create it with `ottla topic create {name}`"

    def _connect(self, address: tuple[str, int]) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BrokerConnection(*address, self._timeout_seconds, self._client_id)
        return connection
