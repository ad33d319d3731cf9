"""A record as tests see it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic: plain data that can be compared and printed."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def text(self) -> str:
        """The value as text. Raises UnicodeDecodeError if it is not text, TypeError for a tombstone."""
        return self._payload().decode()

    def json(self) -> Any:
        """The value parsed as JSON. Raises ValueError if it is not JSON, TypeError for a tombstone."""
        return json.loads(self._payload())

    def _payload(self) -> bytes:
        if self.value is None:
            raise TypeError(f"{self.topic}-{self.partition} at offset {self.offset} is a tombstone: it has no value")
        return self.value


def encode(value: object) -> bytes | None:
    """The bytes of a key or value as a test gives it: bytes, text, None, or anything that JSON can write."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
