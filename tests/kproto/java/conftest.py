"""Apache Kafka's Java codecs as an oracle, one process for the whole session."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.java import java_program, missing

SOURCE = Path(__file__).with_name("Oracle.java")


class OracleError(Exception):
    """What Java threw at the content of a request."""


class Oracle:
    """Asks the Java process one thing at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to_java, self._from_java = process.stdin, process.stdout

    def _ask(self, operation: bytes, content: bytes, name: str = "", version: int = 0) -> bytes:
        head = operation + struct.pack(">h", len(name)) + name.encode() + struct.pack(">h", version)
        self._to_java.write(struct.pack(">i", len(head) + len(content)) + head + content)
        self._to_java.flush()
        prefix = self._from_java.read(4)
        assert len(prefix) == 4, "the Java process has ended; its standard error says why"
        answer = self._from_java.read(*struct.unpack(">i", prefix))
        if answer[0]:
            raise OracleError(answer[1:].decode())
        return answer[1:]

    def recode(self, name: str, version: int, encoded: bytes) -> tuple[bytes, Any]:
        """Java's own encoding of an encoded message, and its content by Kafka's JSON converter."""
        answer = self._ask(b"M", encoded, name, version)
        (size,) = struct.unpack_from(">i", answer)
        return answer[4 : 4 + size], json.loads(answer[4 + size :])

    def defaults(self, name: str) -> dict[str, dict[str, Any]]:
        """By the name of each struct of the message: what a new one holds; arrays are "empty", structs "struct"."""
        structs: dict[str, dict[str, Any]] = json.loads(self._ask(b"D", b"", name))
        return structs

    def build_batch(self, wanted: dict[str, Any]) -> bytes:
        return self._ask(b"B", json.dumps(wanted).encode())

    def read_batches(self, encoded: bytes) -> list[dict[str, Any]]:
        batches: list[dict[str, Any]] = json.loads(self._ask(b"R", encoded))
        return batches

    def build_marker(self, wanted: dict[str, Any]) -> bytes:
        return self._ask(b"E", json.dumps(wanted).encode())


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    if reason := missing():
        pytest.skip(reason)
    with subprocess.Popen(java_program(SOURCE), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Oracle(process)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def oracle_error() -> type[OracleError]:
    return OracleError
