"""A small encoder of OTLP metrics for tests: what `ottla.kproto.otlp` reads."""

from __future__ import annotations

import struct
from collections.abc import Mapping

DELTA, CUMULATIVE = 1, 2


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def attribute(number: int, key: str, value: str | int) -> bytes:
    any_value = message(1, value.encode()) if isinstance(value, str) else varint(3 << 3) + varint(value)
    return message(number, message(1, key.encode()) + message(2, any_value))


def number_point(value: float | int, attributes: Mapping[str, str | int]) -> bytes:
    labels = b"".join(attribute(7, *pair) for pair in attributes.items())
    started = b"\x11" + struct.pack("<q", 1) + b"\x19" + struct.pack("<q", 2)
    if isinstance(value, int):
        return started + b"\x31" + struct.pack("<q", value) + labels
    return started + b"\x21" + struct.pack("<d", value) + labels


def gauge(name: str, value: float | int, **attributes: str | int) -> bytes:
    points = message(1, number_point(value, attributes))
    return message(2, message(1, name.encode()) + message(3, b"unit") + message(5, points))


def counter(name: str, value: float | int, temporality: int = DELTA, **attributes: str | int) -> bytes:
    body = message(1, number_point(value, attributes)) + b"\x10" + varint(temporality) + b"\x18\x01"
    return message(2, message(1, name.encode()) + message(7, body))


def histogram(name: str, count: int, total: float) -> bytes:
    point = b"\x21" + struct.pack("<q", count) + b"\x29" + struct.pack("<d", total) + attribute(9, "node", "1")
    return message(2, message(1, name.encode()) + message(9, message(1, point) + b"\x10" + varint(DELTA)))


def pushed(*metrics: bytes) -> bytes:
    """A whole MetricsData."""
    resource = message(1, attribute(1, "client_rack", "a"))
    return message(1, resource + message(2, message(1, message(1, b"scope")) + b"".join(metrics)))
