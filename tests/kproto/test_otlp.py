"""Metrics of clients, as they push them (KIP-714)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto import otlp
from ottla.kproto.errors import DecodeError
from ottla.kproto.otlp import DataPoint

from .otlp_encoding import CUMULATIVE, counter, gauge, histogram, message, pushed


def test_gauges_sums_and_histograms() -> None:
    data = pushed(
        gauge("a.rate", 1.5, node="2", client="c"),
        counter("a.total", 7),
        counter("b.total", -1, CUMULATIVE, number=(1 << 64) - 3),
        histogram("c.time", 3, 0.5),
    )
    labels = (("node", "1"),)
    assert otlp.metrics(data, 100) == [
        DataPoint("a.rate", (("client", "c"), ("node", "2")), 1.5),
        DataPoint("a.total", (), 7.0, is_sum=True, is_delta=True),
        DataPoint("b.total", (("number", "-3"),), -1.0, is_sum=True),
        DataPoint("c.time.count", labels, 3.0, is_sum=True, is_delta=True),
        DataPoint("c.time.sum", labels, 0.5, is_sum=True, is_delta=True),
    ]


def test_no_more_points_than_are_wanted() -> None:
    data = pushed(*(gauge(f"m{number}", number) for number in range(100)))
    assert [point.name for point in otlp.metrics(data, 3)] == ["m0", "m1", "m2"]


def test_what_is_not_known_is_skipped() -> None:
    extra = message(99, b"x") + b"\xfd\x01abcd" + b"\xf8\x01\x05"
    assert otlp.metrics(pushed(gauge("a", 1)) + extra, 9) == [DataPoint("a", (), 1.0)]


@pytest.mark.parametrize(
    "data", [b"\x0a\x05ab", b"\xff" * 11, b"\x0b", b"\x0a", b"\x0c\x00", pushed(gauge("a", 1))[:-1]]
)
def test_what_does_not_decode(data: bytes) -> None:
    with pytest.raises(DecodeError):
        otlp.metrics(data, 9)


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_any_bytes_are_read_or_refused(noise: bytes, at: int, byte: int) -> None:
    whole = bytearray(pushed(gauge("a", 1.0, x="y"), counter("b", 2), histogram("c", 1, 2.0)))
    whole[at % len(whole)] = byte
    for data in (noise, bytes(whole)):
        try:
            points = otlp.metrics(data, 10)
        except DecodeError:
            continue
        assert len(points) <= 10
