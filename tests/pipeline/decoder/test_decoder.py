"""The vectorised decoder finds what `ottla.kproto.records` finds record by record."""

from __future__ import annotations

import datetime
import struct
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.kproto.records import (
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_BYTES,
    Compression,
    EndTxnMarker,
    Record,
    RecordError,
    build_batch,
    build_end_txn_marker,
    crc32c,
    iter_batches,
    iter_records,
    parse_batch_header,
    patch_log_append_time,
)
from ottla.pipeline.decoder import RecordDecoder, arrow_schema, spark_schema
from ottla.pipeline.errors import DecodingError

START, END = -(1 << 63), (1 << 63) - 1
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

optional_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=4)
# Within what Python's datetime can say; deltas of every length in bytes.
timestamps = st.integers(-1, 1 << 44)
records = st.builds(Record, timestamp_ms=timestamps, key=optional_bytes, value=optional_bytes, headers=headers)


@st.composite
def buffers(draw: st.DrawFn) -> bytes:
    """Several batches in the order of their offsets, with gaps between and within them."""
    offset = draw(st.integers(0, 1 << 40))
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        content = []
        for record in draw(st.lists(records, min_size=1, max_size=8)):
            content.append(record._replace(offset=offset))
            offset += draw(st.sampled_from((1, 1, 1, 2, 70, 9000)))
        batch = bytearray(
            build_batch(content, base_offset=content[0].offset, compression=draw(st.sampled_from(Compression)))
        )
        if draw(st.booleans()):
            patch_log_append_time(batch, 0, draw(timestamps))
        parts.append(bytes(batch))
    return b"".join(parts)


def expected_rows(buffer: bytes, start: int, end: int) -> list[dict[str, Any]]:
    rows = []
    for pos, header in iter_batches(buffer):
        for record in iter_records(buffer, pos, header):
            if start <= record.offset < end:
                rows.append(
                    {
                        "key": record.key,
                        "value": record.value,
                        "topic": "topic",
                        "partition": 3,
                        "offset": record.offset,
                        "timestamp": EPOCH + datetime.timedelta(milliseconds=record.timestamp_ms),
                        "timestampType": int(header.timestamp_type),
                        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
                    }
                )
    return rows


def decoded_rows(buffer: bytes, start: int = 0, end: int = END, **options: Any) -> list[dict[str, Any]]:
    decoder = RecordDecoder("topic", 3, include_headers=True)
    found = list(decoder.decode(memoryview(buffer), start, end, **options))
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(include_headers=True))
    return [row for batch in found for row in batch.to_pylist()]


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in rows]


@given(buffers())
def test_decodes_as_the_record_reader(buffer: bytes) -> None:
    assert decoded_rows(buffer) == expected_rows(buffer, 0, END)


@given(buffers(), st.integers(0, 40), st.integers(0, 40))
def test_keeps_to_a_range_of_offsets(buffer: bytes, after: int, length: int) -> None:
    first = next(iter_batches(buffer))[1].base_offset

    found = decoded_rows(buffer, first + after, first + after + length)

    assert found == expected_rows(buffer, first + after, first + after + length)


@pytest.mark.parametrize("count", [1, 3, 200])
@pytest.mark.parametrize("size", [0, 100, 9_000])
def test_walks_batches_of_any_shape(count: int, size: int) -> None:
    """Many small batches are walked together, a few large ones one by one."""
    parts = []
    for number in range(600 // count):
        content = [Record(value=b"%d" % index * (size // 3)) for index in range(count)]
        parts.append(build_batch(content, base_offset=number * count))
    buffer = b"".join(parts)

    assert decoded_rows(buffer) == expected_rows(buffer, 0, END)


def test_a_batch_from_which_compaction_took_all_is_passed_over() -> None:
    header = parse_batch_header(build_batch([Record(value=b"gone")], base_offset=5))
    empty = bytearray(header._replace(batch_length=HEADER_SIZE_BYTES - LENGTH_PREFIX_BYTES, record_count=0).pack())
    struct.pack_into(">I", empty, 17, crc32c(empty, 21, len(empty)))
    before, after = build_batch([Record(value=b"a")]), build_batch([Record(value=b"b")], base_offset=90)

    assert [row["offset"] for row in decoded_rows(bytes(before + empty + after))] == [0, 90]


def transactional(offset: int, value: bytes, producer_id: int) -> bytes:
    return bytes(
        build_batch(
            [Record(value=value)],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    )


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    return bytes(build_end_txn_marker(EndTxnMarker(producer_id, 0, 0, is_commit), timestamp_ms=0, base_offset=offset))


def test_leaves_out_aborted_transactions_and_markers() -> None:
    buffer = b"".join(
        (
            transactional(0, b"aborted", 7),
            transactional(1, b"other", 8),
            bytes(build_batch([Record(value=b"plain")], base_offset=2)),
            marker(3, 7, is_commit=False),
            transactional(4, b"committed", 7),
            marker(5, 7, is_commit=True),
            marker(6, 8, is_commit=True),
            transactional(7, b"aborted too", 7),
            marker(8, 7, is_commit=False),
        )
    )

    assert values(decoded_rows(buffer, aborted=[(7, 7), (7, 0)])) == [b"other", b"plain", b"committed"]
    assert values(decoded_rows(buffer)) == [b"aborted", b"other", b"plain", b"committed", b"aborted too"]


def test_the_schema_is_what_spark_makes_of_it() -> None:
    fields = [
        types.StructField("key", types.BinaryType()),
        types.StructField("value", types.BinaryType()),
        types.StructField("topic", types.StringType()),
        types.StructField("partition", types.IntegerType()),
        types.StructField("offset", types.LongType()),
        types.StructField("timestamp", types.TimestampType()),
        types.StructField("timestampType", types.IntegerType()),
    ]
    entry = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    with_headers = types.StructType([*fields, types.StructField("headers", types.ArrayType(entry))])

    assert to_arrow_schema(types.StructType(fields), timezone="UTC") == arrow_schema(include_headers=False)
    assert to_arrow_schema(with_headers, timezone="UTC") == arrow_schema(include_headers=True)
    assert spark_schema(include_headers=True).startswith(spark_schema(include_headers=False))


@given(buffers(), st.data())
def test_damage_is_one_sentence_or_what_the_record_reader_finds(buffer: bytes, data: st.DataObject) -> None:
    """Without the checksum the bytes decide: both read the same, or both refuse."""
    position = data.draw(st.integers(61, len(buffer) - 1))
    damaged = bytearray(buffer)
    damaged[position] ^= data.draw(st.integers(1, 255))
    decoder = RecordDecoder("topic", 3, include_headers=True, check_crcs=False, limit_bytes=1 << 20)
    try:
        batches = list(iter_batches(damaged))
        assume(not any(header.is_control for _, header in batches))  # the decoder does not look into markers
        rows = [record for pos, header in batches for record in iter_records(damaged, pos, header)]
    except RecordError as error:
        assume("is not UTF-8" not in str(error))  # the record reader refuses such keys of headers
        with pytest.raises(DecodingError):
            list(decoder.decode(memoryview(damaged), 0, END))
    else:
        count = sum(batch.num_rows for batch in decoder.decode(memoryview(damaged), START, END))
        assert count == sum(record.offset < END for record in rows)


def test_a_header_key_that_is_not_utf8_is_shown_as_kafka_shows_it() -> None:
    records = [
        Record(value=b"a", headers=(("plain", b"1"), ("twice", None))),
        Record(value=b"b", headers=(("other", b"2"),)),
        Record(value=b"c"),
    ]
    buffer = bytes(build_batch(records)).replace(b"twice", b"\xff\xc3ice")
    assert len(buffer) == len(build_batch(records))

    for include_headers in (True, False):
        decoder = RecordDecoder("topic", 3, include_headers=include_headers, check_crcs=False)
        (batch,) = decoder.decode(memoryview(buffer), 0, END)
        batch.validate(full=True)
        assert values(batch.to_pylist()) == [b"a", b"b", b"c"]
        if include_headers:
            assert batch.column("headers").to_pylist() == [
                [{"key": "plain", "value": b"1"}, {"key": "\ufffd\ufffdice", "value": None}],
                [{"key": "other", "value": b"2"}],
                None,
            ]


def test_a_wrong_checksum_is_a_sentence() -> None:
    damaged = bytearray(build_batch([Record(value=b"value")], base_offset=42))
    damaged[-2] ^= 1

    with pytest.raises(DecodingError, match=r"Partition topic-3 .* base offset 42 is wrong.*startingOffsets"):
        decoded_rows(bytes(damaged))


def test_an_inflating_batch_is_refused_at_the_limit() -> None:
    bomb = build_batch([Record(value=bytes(2_000_000))], compression=Compression.ZSTD)
    decoder = RecordDecoder("topic", 0, limit_bytes=1_000_000)

    with pytest.raises(DecodingError, match="limit"):
        list(decoder.decode(memoryview(bytes(bomb)), 0, END))


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_a_batch_that_ends_early_is_a_sentence(cut: int) -> None:
    batch = bytes(build_batch([Record(value=b"value" * 20)]))

    with pytest.raises(DecodingError, match="Partition topic-3"):
        decoded_rows(batch[:-cut])
