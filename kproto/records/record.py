"""A record, and its encoding inside a batch (KIP-98; `DefaultRecord` in Apache Kafka).

A record is: length (varint) | attributes (1 byte, unused) | timestamp delta (varlong) | offset delta (varint) |
key length (varint, -1 = null), key | value length, value | header count (varint) | (key length, key, value length,
value)*.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.kproto.records.types import NO_TIMESTAMP
from ottla.kproto.records.varint import varint

RecordHeaders = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record. An offset of -1 means "the next one" to the builders; readers always give the real one.

    `timestamp_ms` is -1 when there is none. Header keys are text, header values may be None.
    """

    offset: int = -1
    timestamp_ms: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: RecordHeaders = ()


def encode_record(
    offset_delta: int,
    timestamp_delta_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: RecordHeaders,
) -> bytes:
    """Return one record's bytes, its length in front."""
    parts = [b"\x00", varint(timestamp_delta_ms), varint(offset_delta)]
    parts += (_NULL,) if key is None else (varint(len(key)), key)
    parts += (_NULL,) if value is None else (varint(len(value)), value)
    parts.append(varint(len(headers)))
    for name, content in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (_NULL,) if content is None else (varint(len(content)), content)
    body = b"".join(parts)
    return varint(len(body)) + body


_NULL = varint(-1)
