"""A connection that sends the request of a step, in whatever shape, and says what came of it."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from compat_tests.differential.history import Step
from compat_tests.differential.values import Values, plain
from compat_tests.wire.wire_routes import Address
from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError, EncodeError
from ottla.kproto.frames import parse_response_frame
from ottla.kproto.framing import PREFIX_SIZE, frame_prefix
from ottla.kproto.messages import request_class

CLOSED: Final = "closed"
WAITING: Final = "waiting"
UNBUILDABLE: Final = "unbuildable"
UNANSWERED: Final = "unanswered"
_PROBE: Final = Step(id=-1, api="METADATA", version=4, fields={"topics": [], "allow_auto_topic_creation": False})


@dataclass
class Outcome:
    """What came of a step: `answered` with plain data, or one of the words above."""

    word: str
    answer: Any = None


class Connection:
    """One connection; it sends one request at a time, and is made anew after the broker has closed it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._correlation_id = 0
        self.awaited: Step | None = None

    def close(self) -> None:
        self.awaited = None
        self._received.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, step: Step, values: Values) -> Outcome | None:
        """None if an answer is to be received."""
        try:
            frame = self._frame(step, values)
        except EncodeError:
            return Outcome(UNBUILDABLE)
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=20)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.awaited = step
        try:
            self._socket.sendall(frame)
            if step.api_key is ApiKey.PRODUCE and step.fields.get("acks", 0) == 0 and not step.cut_bytes:
                # Nothing answers it; what comes behind it is answered when it is done, or the connection is closed.
                self.awaited = _PROBE
                self._socket.sendall(self._frame(_PROBE, values))
        except OSError:
            self.close()
            return Outcome(CLOSED)
        return None

    def receive(self, patience_s: float) -> Outcome | None:
        """What came of the request that was sent; None if there is no answer within that time."""
        step = self.awaited
        assert step is not None
        try:
            frame = self._read_frame(time.monotonic() + patience_s)
        except OSError:
            self.close()
            return Outcome(CLOSED)
        if frame is None:
            return None
        self.awaited = None
        if step is _PROBE:
            return Outcome(UNANSWERED)
        try:
            correlation_id, answer = parse_response_frame(step.api_key, step.version, frame)
        except DecodeError as error:
            return Outcome("unreadable", f"{error}: {frame.hex()}")
        assert correlation_id == self._correlation_id, step
        return Outcome("answered", plain(answer))

    def _read_frame(self, deadline: float) -> bytes | None:
        assert self._socket is not None
        while True:
            if len(self._received) >= PREFIX_SIZE:
                end = PREFIX_SIZE + int.from_bytes(self._received[:PREFIX_SIZE], "big")
                if len(self._received) >= end:
                    frame = bytes(self._received[PREFIX_SIZE:end])
                    del self._received[:end]
                    return frame
            self._socket.settimeout(max(deadline - time.monotonic(), 0.0005))
            try:
                piece = self._socket.recv(1 << 18)
            except TimeoutError:
                return None
            if not piece:
                raise ConnectionResetError
            self._received += piece

    def _frame(self, step: Step, values: Values) -> bytes:
        self._correlation_id += 1
        cls = request_class(step.api_key)
        message = values.message(cls, step.fields, step.version)
        client_id = values.resolved(step.client_id)
        header = headers.build_request_header(step.api_key, step.version, self._correlation_id, client_id)
        body = values.patched(header + codec.build(message, step.version))
        body = body[: len(body) - step.cut_bytes] + bytes.fromhex(step.extra_hex)
        return frame_prefix(len(body)) + body
