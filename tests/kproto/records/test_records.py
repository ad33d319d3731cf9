"""Records: what is built is read back, and what is damaged raises a declared error."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.kproto.records import (
    BatchBuilder,
    BatchHeader,
    Compression,
    CorruptRecordError,
    DecompressedSizeError,
    InvalidRecordError,
    Record,
    RecordError,
    TimestampType,
    build_batch,
    iter_batches,
    iter_keys,
    iter_positions,
    iter_records,
    parse_batch_header,
    rebuild_batch,
    validate_produced_batch,
    verify_crc,
)
from ottla.kproto.records.builder import assemble_batch
from ottla.kproto.records.varint import read_varint, read_varlong, varint

CONTENT = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=10), CONTENT), max_size=3).map(tuple)
TIMESTAMPS = st.integers(-1, 2**42)
RECORDS = st.lists(st.builds(Record, st.just(-1), TIMESTAMPS, CONTENT, CONTENT, HEADERS), min_size=1, max_size=20)


def with_offsets(records: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


def with_payload(payload: bytes, *, count: int = 1) -> bytes:
    """A batch with a right CRC around any payload."""
    header = parse_batch_header(build_batch([Record(timestamp_ms=0)]))
    return assemble_batch(header._replace(record_count=count, last_offset_delta=max(count, 1) - 1), payload)


@given(RECORDS, st.integers(0, 2**62), st.sampled_from(Compression))
def test_what_is_built_is_read_back(records: list[Record], base_offset: int, compression: Compression) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=compression)
    ((pos, header),) = iter_batches(batch)
    verify_crc(batch, pos, header)
    validate_produced_batch(header)
    expected = with_offsets(records, base_offset)
    assert list(iter_records(batch, strict=True)) == expected
    assert list(iter_records(memoryview(b"__" + batch), 2)) == expected
    assert list(iter_positions(batch)) == [(record.offset, record.timestamp_ms) for record in expected]
    assert list(iter_keys(batch)) == [(record.offset, record.key, record.value is None) for record in expected]
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)


@given(RECORDS, st.sampled_from(Compression), st.data())
def test_a_rebuilt_batch_keeps_its_place(records: list[Record], compression: Compression, data: st.DataObject) -> None:
    batch = build_batch(
        records, base_offset=9, compression=compression, producer_id=4, producer_epoch=0, base_sequence=3
    )
    header = parse_batch_header(batch)
    expected = with_offsets(records, 9)
    assert rebuild_batch(header, expected) == batch
    kept = [record for record in expected if data.draw(st.booleans())]
    rebuilt = rebuild_batch(header, kept, delete_horizon_ms=77)
    after = parse_batch_header(rebuilt)
    verify_crc(rebuilt, 0, after)
    assert list(iter_records(rebuilt, strict=True)) == kept
    assert after.delete_horizon_ms == 77
    assert (after.base_offset, after.next_offset, after.last_sequence, after.producer_id) == (
        header.base_offset,
        header.next_offset,
        header.last_sequence,
        header.producer_id,
    )
    assert list(iter_records(rebuild_batch(after, kept), strict=True)) == kept


@settings(max_examples=300)
@given(RECORDS, st.sampled_from(Compression), st.data())
def test_damaged_bytes_raise_only_declared_errors(
    records: list[Record], compression: Compression, data: st.DataObject
) -> None:
    buf = bytearray(build_batch(records, compression=compression))
    for _ in range(data.draw(st.integers(1, 4))):
        buf[data.draw(st.integers(17, len(buf) - 1))] = data.draw(st.integers(0, 255))
    for read in (iter_records, iter_positions, iter_keys):
        try:
            header = parse_batch_header(buf)
            for _ in read(buf, 0, header, limit_bytes=100_000):
                pass
        except RecordError:
            continue


@settings(max_examples=300)
@given(st.binary(max_size=80), st.integers(-1, 10))
def test_any_payload_raises_only_declared_errors(payload: bytes, count: int) -> None:
    batch = with_payload(payload, count=count)
    for read in (iter_records, iter_positions, iter_keys):
        try:
            got = list(read(batch))
        except RecordError:
            continue
        assert len(got) == count


@given(RECORDS, st.integers(1, 50))
def test_a_cut_or_extended_payload_is_corrupt(records: list[Record], cut: int) -> None:
    batch = build_batch(records)
    header = parse_batch_header(batch)
    payload = batch[61:]
    for changed in (payload[: -min(cut, len(payload))], payload + bytes(cut)):
        for read in (iter_records, iter_positions, iter_keys):
            with pytest.raises(CorruptRecordError):
                list(read(assemble_batch(header, changed)))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x00\x00\x00\x01\x01\x00\x00", "a byte after the headers"),
        (b"\x00\x00\x00\x01\x01\x01", "a negative header count"),
        (b"\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f", "two billion headers"),
        (b"\x00\x00\x00\x01\x01\x02\x01\x01", "a header key of length -1"),
        (b"\x00\x00\x00\x01\x01\x02\x02a\x7e", "a header value beyond the record"),
        (b"\x00\x00\x00\x7e\x01\x00", "a key beyond the record"),
        (b"\x00\x00\x00\x01\x7e\x00", "a value beyond the record"),
        (b"\x00\x00\x00\x01\xff\xff\xff\xff\xff\x01\x00", "a varint of six bytes"),
        (b"\x00\x00\x00\x01\xff\xff\xff\xff\x7f\x00", "a varint above 32 bits"),
    ],
)
def test_malformed_records_are_corrupt(body: bytes, why: str) -> None:
    batch = with_payload(varint(len(body)) + body)
    with pytest.raises(CorruptRecordError):
        list(iter_records(batch))


def test_a_header_key_that_is_not_utf8_is_read_as_java_reads_it() -> None:
    body = b"\x00\x00\x00\x01\x01\x02\x02\xff\x01"
    (record,) = iter_records(with_payload(varint(len(body)) + body))
    assert record.headers == (("\ufffd", None),)


def test_a_key_read_skips_a_value_that_fits_only_without_it() -> None:
    body = b"\x00\x00\x00\x01\x7e\x00\x00"
    with pytest.raises(CorruptRecordError):
        list(iter_keys(with_payload(varint(len(body)) + body)))


@pytest.mark.parametrize("count", [2, 2**31 - 1, -1])
def test_a_lying_record_count_is_corrupt_before_anything_is_read(count: int) -> None:
    header = parse_batch_header(build_batch([Record(value=b"x")]))._replace(record_count=count)
    batch = assemble_batch(header, build_batch([Record(value=b"x")])[61:])
    for read in (iter_records, iter_positions, iter_keys):
        with pytest.raises(CorruptRecordError):
            next(iter(read(batch)))


def strict_only(header: BatchHeader, payload: bytes) -> None:
    batch = assemble_batch(header, payload)
    list(iter_records(batch))
    with pytest.raises(InvalidRecordError):
        list(iter_records(batch, strict=True))


def test_strict_mode_finds_what_readers_tolerate() -> None:
    batch = build_batch([Record(timestamp_ms=5, value=b"a"), Record(timestamp_ms=6, value=b"b")])
    header, payload = parse_batch_header(batch), batch[61:]
    strict_only(header._replace(max_timestamp_ms=5), payload)
    half = len(payload) // 2
    strict_only(header, payload[half:] + payload[:half])
    strict_only(header._replace(record_count=1, last_offset_delta=0), payload[half:])
    strict_only(header, payload[:1] + b"\x01" + payload[2:])
    sparse = assemble_batch(header._replace(record_count=1), payload[half:])
    assert [record.offset for record in iter_records(sparse, strict=True)] == [1]


def test_the_limit_holds_for_compressed_records() -> None:
    batch = build_batch([Record(value=bytes(1_000_000))], compression=Compression.ZSTD)
    with pytest.raises(DecompressedSizeError):
        list(iter_records(batch, limit_bytes=999_999))
    assert len(list(iter_records(batch, limit_bytes=1_000_100))) == 1


def test_the_builder_keeps_count_size_and_offsets() -> None:
    builder = BatchBuilder(base_offset=10, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert builder.append(b"a", None, 30) == 10
    assert builder.append(b"b", b"", 20, offset=15) == 15
    assert (builder.record_count, builder.next_offset) == (2, 16)
    batch = builder.build(last_offset=19)
    assert len(batch) == builder.size_bytes
    header = parse_batch_header(batch)
    assert (header.record_count, header.last_offset, header.base_timestamp_ms, header.max_timestamp_ms) == (
        2,
        19,
        30,
        30,
    )
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_the_builder_refuses_what_the_format_cannot_hold() -> None:
    builder = BatchBuilder(base_offset=10)
    with pytest.raises(InvalidRecordError):
        builder.build()
    with pytest.raises(InvalidRecordError):
        builder.append(None, None, offset=9)
    with pytest.raises(InvalidRecordError):
        builder.append(None, None, offset=10 + 2**31)
    builder.append(None, None, offset=12)
    with pytest.raises(InvalidRecordError):
        builder.build(last_offset=11)


@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = varint(value)
    assert len(encoded) <= 5
    assert read_varint(b"_" + encoded + b"_", 1) == (value, 1 + len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_round_trip(value: int) -> None:
    encoded = varint(value)
    assert len(encoded) <= 10
    assert read_varlong(encoded, 0) == (value, len(encoded))


def test_varints_are_bounded() -> None:
    for damaged in (b"", b"\x80", b"\xff\xff\xff\xff\x10", b"\x80" * 20):
        with pytest.raises(CorruptRecordError):
            read_varint(damaged, 0)
    for damaged in (b"\xff" * 9 + b"\x02", b"\x80" * 11, b"\x80" * 9):
        with pytest.raises(CorruptRecordError):
            read_varlong(damaged, 0)


def test_values_out_of_range_are_invalid() -> None:
    for builder in (
        BatchBuilder(base_offset=2**63),
        BatchBuilder(producer_id=2**63),
        BatchBuilder(producer_epoch=2**15),
    ):
        builder.append(None, None)
        with pytest.raises(InvalidRecordError):
            builder.build()
    header = parse_batch_header(build_batch([Record()]))
    with pytest.raises(InvalidRecordError):
        rebuild_batch(header, [Record(offset=0, timestamp_ms=2**63)])


def test_a_timestamp_delta_may_be_negative_and_long() -> None:
    batch = build_batch([Record(timestamp_ms=2**41), Record(timestamp_ms=0), Record(timestamp_ms=2**62)])
    assert [timestamp for _, timestamp in iter_positions(batch)] == [2**41, 0, 2**62]
    assert struct.unpack_from(">q", batch, 35) == (2**62,)
