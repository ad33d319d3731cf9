"""The part of OpenTelemetry's metrics that Kafka's clients push (KIP-714): protobuf bytes to data points.

`opentelemetry/proto/metrics/v1/metrics.proto`: gauges and sums, and of histograms their count and sum. Everything else
is skipped. The depth is that of the schema, nothing recurses, and nothing is kept beyond `max_points`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.kproto.errors import DecodeError

Attributes = tuple[tuple[str, str], ...]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = Struct("<d")
_INT64: Final = Struct("<q")
_DELTA: Final = 1


class DataPoint(NamedTuple):
    """One number of one metric.

    `is_sum` tells a count that only grows from a number that rises and falls; `is_delta` that it is what was added
    since the last push.
    """

    name: str
    attributes: Attributes
    value: float
    is_sum: bool = False
    is_delta: bool = False


Field = tuple[int, int, "memoryview | int"]


def metrics(data: bytes | memoryview, max_points: int) -> list[DataPoint]:
    """The data points of a MetricsData message, the first `max_points` of them. Raises DecodeError."""
    points: list[DataPoint] = []
    for resource in _messages(memoryview(data), 1):
        for scope in _messages(resource, 2):
            for metric in _messages(scope, 2):
                for point in _points_of(metric):
                    if len(points) >= max_points:
                        return points
                    points.append(point)
    return points


def _points_of(metric: memoryview) -> Iterator[DataPoint]:
    name = ""
    bodies: list[tuple[int, memoryview]] = []
    for number, _, value in _fields(metric):
        if number == 1 and isinstance(value, memoryview):
            name = _text(value)
        elif number in (5, 7, 9) and isinstance(value, memoryview):
            bodies.append((number, value))
    for kind, body in bodies:
        is_delta = is_monotonic = False
        for number, _, value in _fields(body):
            if number == 2 and isinstance(value, int):
                is_delta = value == _DELTA
            elif number == 3 and isinstance(value, int):
                is_monotonic = bool(value)
        for point in _messages(body, 1):
            if kind == 9:
                yield from _histogram(name, point, is_delta=is_delta)
            else:
                is_sum = kind == 7 and is_monotonic
                yield _number(name, point, is_sum=is_sum, is_delta=is_sum and is_delta)


def _number(name: str, point: memoryview, *, is_sum: bool, is_delta: bool) -> DataPoint:
    value = 0.0
    attributes: list[tuple[str, str]] = []
    for number, wire, raw in _fields(point):
        if number == 4 and wire == _FIXED64 and isinstance(raw, memoryview):
            (value,) = _DOUBLE.unpack(raw)
        elif number == 6 and wire == _FIXED64 and isinstance(raw, memoryview):
            value = float(_INT64.unpack(raw)[0])
        elif number == 7 and isinstance(raw, memoryview):
            attributes.append(_attribute(raw))
    return DataPoint(name, tuple(sorted(attributes)), value, is_sum, is_delta)


def _histogram(name: str, point: memoryview, *, is_delta: bool) -> Iterator[DataPoint]:
    count = total = 0.0
    attributes: list[tuple[str, str]] = []
    for number, wire, raw in _fields(point):
        if number == 4 and wire == _FIXED64 and isinstance(raw, memoryview):
            count = float(_INT64.unpack(raw)[0])
        elif number == 5 and wire == _FIXED64 and isinstance(raw, memoryview):
            (total,) = _DOUBLE.unpack(raw)
        elif number == 9 and isinstance(raw, memoryview):
            attributes.append(_attribute(raw))
    labels = tuple(sorted(attributes))
    yield DataPoint(f"{name}.count", labels, count, is_sum=True, is_delta=is_delta)
    yield DataPoint(f"{name}.sum", labels, total, is_sum=True, is_delta=is_delta)


def _attribute(pair: memoryview) -> tuple[str, str]:
    key = text = ""
    for number, _, value in _fields(pair):
        if number == 1 and isinstance(value, memoryview):
            key = _text(value)
        elif number == 2 and isinstance(value, memoryview):
            text = _any_value(value)
    return key, text


def _any_value(value: memoryview) -> str:
    for number, wire, raw in _fields(value):
        if number == 1 and isinstance(raw, memoryview):
            return _text(raw)
        if number == 2 and isinstance(raw, int):
            return "true" if raw else "false"
        if number == 3 and isinstance(raw, int):
            return str(raw - (1 << 64) if raw >= 1 << 63 else raw)
        if number == 4 and wire == _FIXED64 and isinstance(raw, memoryview):
            return str(_DOUBLE.unpack(raw)[0])
    return ""


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """The embedded messages of one field."""
    for number, _, value in _fields(data):
        if number == wanted and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[Field]:
    """The fields of one message: number, wire type, and the number or the bytes."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: memoryview | int
        if wire == _VARINT:
            value, at = _varint(data, at)
        else:
            if wire == _BYTES:
                size, at = _varint(data, at)
            elif wire in (_FIXED64, _FIXED32):
                size = 8 if wire == _FIXED64 else 4
            else:
                raise DecodeError(f"wire type {wire} of a protobuf field")
            if size > end - at:
                raise DecodeError(f"a protobuf field of {size} bytes where {end - at} are left")
            value, at = data[at : at + size], at + size
        yield number, wire, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DecodeError("a protobuf number that does not end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7


def _text(value: memoryview) -> str:
    return str(value, "utf-8", "replace")
