"""What the encoder makes of columns is what `ottla.kproto` makes record by record."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from ottla.kproto.partitioner import partition_for_key
from ottla.kproto.records.record import encode_record
from ottla.pipeline.encoder import Columns, encode, encode_headers, partitions_for_keys
from ottla.pipeline.errors import RowError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# Around the borders of varints of one, two and three bytes.
SIZES = (0, 1, 3, 5, 62, 63, 64, 65, 8191, 8192, 20_000)

Row = tuple[bytes | None, bytes | None, list[dict[str, Any]] | None]


def rows_of(seed: int, count: int) -> list[Row]:
    drawn = random.Random(seed)

    def some_bytes() -> bytes | None:
        return None if drawn.random() < 0.2 else drawn.randbytes(drawn.choice(SIZES))

    def some_headers() -> list[dict[str, Any]] | None:
        if drawn.random() < 0.2:
            return None
        return [{"key": "h" * drawn.choice((0, 1, 64)), "value": some_bytes()} for _ in range(drawn.randrange(4))]

    return [(some_bytes(), some_bytes(), some_headers()) for _ in range(count)]


def columns_of(rows: list[Row], start: int = 0) -> Columns:
    """Columns of the rows from `start` on, as slices of longer ones."""
    keys, values, headers = zip(*rows, strict=True)
    return Columns(
        pa.array(keys, pa.binary()).slice(start),
        pa.array(values, pa.binary()).slice(start),
        encode_headers(pa.array(headers, HEADERS).slice(start)),
    )


def one_by_one(rows: list[Row], first: int) -> list[bytes]:
    return [
        encode_record(number, 0, key, value, tuple((entry["key"], entry["value"]) for entry in headers or ()))
        for number, (key, value, headers) in enumerate(rows, start=first)
    ]


@pytest.mark.parametrize(("start", "first"), [(0, 0), (7, 0), (0, 60), (3, 8_190)])
def test_records_are_those_of_kproto(start: int, first: int) -> None:
    rows = rows_of(start + first, 150)
    columns = columns_of(rows, start)
    expected = one_by_one(rows[start:], first)
    assert bytes(encode(columns, first)) == b"".join(expected)
    assert all(columns.most_bytes() >= [len(record) for record in expected])


def test_records_without_headers_and_of_no_bytes_at_all() -> None:
    empty = pa.nulls(3, pa.binary())
    assert bytes(encode(Columns(empty, empty), 0)) == b"".join(one_by_one([(None, None, None)] * 3, 0))


def test_a_header_without_a_key_is_refused() -> None:
    with pytest.raises(RowError, match="A header has no key"):
        encode_headers(pa.array([[{"key": None, "value": b"v"}]], HEADERS))


def test_partitions_are_those_of_kproto() -> None:
    drawn = random.Random(5)
    keys = [None if drawn.random() < 0.1 else drawn.randbytes(drawn.randrange(40)) for _ in range(400)]
    keys += [bytes(512), b"k" * 513, b"\xff" * 5_000]
    found = partitions_for_keys(pa.array([b"before", *keys], pa.binary()).slice(1), 7)
    assert found.tolist() == [-1 if key is None else partition_for_key(key, 7) for key in keys]
