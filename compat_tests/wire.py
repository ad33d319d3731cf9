"""A connection that speaks Kafka's protocol request by request, for what no client library lets one send."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import build_request_frame, parse_response_frame
from ottla.kproto.framing import PREFIX_SIZE, frame_size
from ottla.kproto.messages.produce import ProduceRequest

_MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024


class Wire:
    """A connection that sends whatever it is told to."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        self._correlation_id = 0
        self._awaited: deque[int] = deque()

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive(request.API_KEY, version)

    def send(self, request: Any, version: int) -> None:
        """Several may be sent before the first answer is received; they are received in their order.

        A produce request without acknowledgement has no answer.
        """
        self._correlation_id += 1
        if not (isinstance(request, ProduceRequest) and request.acks == 0):
            self._awaited.append(self._correlation_id)
        self._socket.sendall(build_request_frame(request, version, self._correlation_id, "wire"))

    def receive(self, key: ApiKey, version: int) -> Any:
        size = frame_size(self._read(PREFIX_SIZE), _MAX_ANSWER_BYTES)
        correlation_id, answer = parse_response_frame(key, version, self._read(size))
        assert correlation_id == self._awaited.popleft()
        return answer

    def is_closed_by_broker(self) -> bool:
        self._socket.settimeout(10)
        return self._socket.recv(1) == b""

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError("the broker closed the connection")
            data += piece
        return bytes(data)
