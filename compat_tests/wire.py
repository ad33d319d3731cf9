"""A connection that speaks Kafka's protocol request by request, for what no client library lets one send."""

from __future__ import annotations

import socket
import struct
from typing import Any

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey


class Wire:
    """A connection that sends whatever it is told to."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive(request.API_KEY, version)

    def send(self, request: Any, version: int) -> None:
        self._correlation_id += 1
        head = headers.build_request_header(request.API_KEY, version, self._correlation_id, "wire")
        body = head + codec.build_request(request, version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self, key: ApiKey, version: int) -> Any:
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        header, body_start = headers.parse_response_header(key, version, frame)
        assert header.correlation_id == self._correlation_id
        return codec.parse_response(key, version, frame, body_start)

    def is_closed_by_broker(self) -> bool:
        self._socket.settimeout(10)
        return self._socket.recv(1) == b""

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data
