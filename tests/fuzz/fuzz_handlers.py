"""A coverage-guided fuzzer over the handlers of a real broker in this process: `make fuzz`.

Whatever is asked, the broker answers or closes that connection, and never with a fault of its own: no traceback in its
log, no connection ended by one, and another client is still served. The first byte of an input chooses an API, the
second a version; the rest is the body of a request. The arguments are libFuzzer's; without a corpus directory a
temporary one is filled with generated requests. Needs atheris.
"""

from __future__ import annotations

import logging
import socket
import struct
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from uuid import UUID

import atheris

from tests.rooms import BROKER

with atheris.instrument_imports(include=[f"ottla.{room}" for room in (*BROKER, "kproto")]):
    from ottla.kproto import codec
    from ottla.kproto.api_keys import ApiKey
    from ottla.kproto.errors import ProtocolError
    from ottla.kproto.headers import build_request_header
    from ottla.kproto.messages.topics.metadata import MetadataRequest
    from ottla.server.apis.table import declaration, served
    from ottla.testing import Broker

    for key in served():  # else a worker thread would import them later, without instruments
        declaration(key)
    for name in ("group.coordinator", "group.consumer", "transaction.coordinator", "transaction.markers"):
        import_module(f"ottla.coordinator.{name}")

from tests.server.apis.generated import TOPIC, requests

KEYS = list(served())
#: Answers that may wait as long as the request says are not waited for.
ANSWER_SECONDS = 0.2
PER_CONNECTION = 5_000


class Faults(logging.Handler):
    """Collects what the broker logs with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            self.told.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


class Target:
    """One connection to the broker at a time."""

    def __init__(self, broker: Broker) -> None:
        self._port = broker.port
        self._connection: socket.socket | None = None
        self._sent = 0
        self.faults = Faults()
        logging.getLogger("ottla").addHandler(self.faults)

    def send(self, key: ApiKey, version: int, body: bytes) -> None:
        """Send a request and read its answer, if it comes soon."""
        connection = self._connect()
        frame = build_request_header(key, version, 1, "fuzz") + body
        try:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            head = connection.recv(4, socket.MSG_WAITALL)
            left = struct.unpack(">i", head)[0]
            while left:
                left -= len(connection.recv(min(left, 1 << 16))) or left
        except (OSError, struct.error):
            self._disconnect()

    def is_alive(self) -> bool:
        self._disconnect()
        connection = self._connect()
        frame = build_request_header(ApiKey.METADATA, 12, 1, "alive") + codec.build(MetadataRequest(topics=[]), 12)
        connection.settimeout(30)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        alive = len(connection.recv(4)) > 0
        self._disconnect()
        return alive

    def _connect(self) -> socket.socket:
        self._sent += 1
        if self._connection is None or self._sent % PER_CONNECTION == 0:
            self._disconnect()
            self._connection = socket.create_connection(("127.0.0.1", self._port), 5)
            self._connection.settimeout(ANSWER_SECONDS)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
        self._connection = None


def _version(key: ApiKey, choice: int) -> int:
    lowest, highest = key.valid_versions
    return lowest + choice % (highest - lowest + 1)


def _write_corpus(folder: Path) -> None:
    for index, key in enumerate(KEYS):
        for version in {key.valid_versions.lowest, key.valid_versions.highest}:
            for number, request in enumerate(requests(key, version, UUID(int=5))):
                if number % 5 == 0:
                    body = codec.build(request, version)
                    choice = bytes([index, version - key.valid_versions.lowest])
                    (folder / f"{key.name}-{version}-{number}").write_bytes(choice + body[:2_000])


def main() -> None:
    arguments = list(sys.argv)
    logging.getLogger("ottla").propagate = False
    with Broker() as broker, tempfile.TemporaryDirectory() as corpus:
        broker.create_topic(TOPIC, 3)
        target = Target(broker)
        inputs = 0

        def one_input(data: bytes) -> None:
            nonlocal inputs
            if len(data) < 2:
                return
            inputs += 1
            key = KEYS[data[0] % len(KEYS)]
            version = _version(key, data[1])
            with suppress(ProtocolError):  # what does not decode closes the connection: there is a fuzzer for that
                codec.parse_request(key, version, data[2:])
                target.send(key, version, data[2:])
            if inputs % 1_000 == 0 and not target.is_alive():
                raise AssertionError("the broker serves nobody any more")
            if target.faults.told:
                raise AssertionError(f"{key.name} v{version} {data[2:]!r}: {target.faults.told}")

        if all(argument.startswith("-") for argument in arguments[1:]):
            _write_corpus(Path(corpus))
            arguments.append(corpus)
        atheris.Setup(arguments, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
