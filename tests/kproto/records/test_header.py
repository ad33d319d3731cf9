"""The batch header: layout, bounds, rules, and what a broker may patch in place."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.records import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    Compression,
    CorruptRecordError,
    InvalidRecordError,
    Record,
    RecordError,
    TimestampType,
    UnsupportedCompressionError,
    UnsupportedMagicError,
    build_batch,
    crc_matches,
    iter_batches,
    iter_records,
    parse_batch_header,
    patch_base_offset_and_epoch,
    patch_log_append_time,
    validate_batch,
    validate_produced_batch,
    verify_crc,
    whole_batches_size_bytes,
)

RECORDS = [Record(timestamp_ms=1_000 + n, key=b"k", value=b"v" * n) for n in range(3)]


def header_of(**changes: int) -> BatchHeader:
    return parse_batch_header(build_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=0))._replace(
        **changes
    )


def test_the_layout_is_that_of_the_protocol() -> None:
    batch = build_batch(
        RECORDS[:1],
        base_offset=5,
        leader_epoch=6,
        producer_id=7,
        producer_epoch=8,
        base_sequence=9,
        is_transactional=True,
    )
    assert struct.unpack(">qi", batch[:12]) == (5, len(batch) - 12)
    assert struct.unpack(">ib", batch[12:17]) == (6, 2)
    assert struct.unpack(">hiqqqhii", batch[21:61]) == (0x10, 0, 1_000, 1_000, 7, 8, 9, 1)


@given(st.integers(0, 2**63 - 2**31), st.integers(-1, 2**31 - 1), st.integers(0, 0x7F), st.integers(0, 2**31 - 1))
def test_a_header_packs_to_the_bytes_it_was_parsed_from(offset: int, epoch: int, attributes: int, delta: int) -> None:
    header = header_of(base_offset=offset, leader_epoch=epoch, attributes=attributes, last_offset_delta=delta)
    body = bytes(header.size_bytes - HEADER_SIZE_BYTES)
    assert parse_batch_header(header.pack() + body) == header
    assert len(header.pack()) == HEADER_SIZE_BYTES


def test_properties_read_the_attribute_bits() -> None:
    header = header_of(attributes=0x7C, base_timestamp_ms=44, base_offset=10, last_offset_delta=4)
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional
    assert header.is_control
    assert header.delete_horizon_ms == 44
    assert (header.last_offset, header.next_offset) == (14, 15)
    plain = header_of(attributes=0)
    assert plain.delete_horizon_ms is None
    assert (plain.is_transactional, plain.is_control) == (False, False)


def test_sequences_wrap_after_the_largest_int32() -> None:
    assert header_of(base_sequence=2**31 - 1, last_offset_delta=0).last_sequence == 2**31 - 1
    assert header_of(base_sequence=2**31 - 1, last_offset_delta=2).last_sequence == 1
    assert header_of(base_sequence=-1).last_sequence == -1


def test_a_walk_yields_every_batch_with_its_position() -> None:
    one, two = build_batch(RECORDS), build_batch(RECORDS[:1], base_offset=3)
    walked = list(iter_batches(memoryview(one + two)))
    assert [(pos, header.base_offset) for pos, header in walked] == [(0, 0), (len(one), 3)]
    assert list(iter_batches(b"")) == []


@given(st.integers(1, 200))
def test_a_batch_that_ends_early_is_corrupt(cut: int) -> None:
    batch = build_batch(RECORDS)
    cut = min(cut, len(batch) - 1)
    with pytest.raises(CorruptRecordError):
        list(iter_batches((batch + batch)[:-cut]))
    assert whole_batches_size_bytes((batch + batch)[:-cut]) == len(batch)


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48])
def test_a_length_below_the_header_cannot_stall_the_walk(length: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptRecordError):
        list(iter_batches(batch))
    with pytest.raises(CorruptRecordError):
        whole_batches_size_bytes(batch)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_named_even_where_their_batch_is_shorter_than_a_v2_header(magic: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[16] = magic
    with pytest.raises(UnsupportedMagicError):
        parse_batch_header(batch)
    with pytest.raises(UnsupportedMagicError):
        parse_batch_header(batch[:30])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"attributes": 5}, UnsupportedCompressionError),
        ({"attributes": 7}, UnsupportedCompressionError),
        ({"last_offset_delta": -1}, InvalidRecordError),
        ({"base_offset": -1}, InvalidRecordError),
        ({"record_count": -1}, InvalidRecordError),
        ({"record_count": 4}, InvalidRecordError),
        ({"producer_id": -2}, InvalidRecordError),
        ({"producer_epoch": -2}, InvalidRecordError),
        ({"base_sequence": -2}, InvalidRecordError),
        ({"attributes": 0x30, "producer_id": -1}, InvalidRecordError),
    ],
)
def test_rules_of_every_batch(changes: dict[str, int], error: type[RecordError]) -> None:
    validate_batch(header_of())
    with pytest.raises(error):
        validate_batch(header_of(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": 0},
        {"record_count": 2},
        {"last_offset_delta": 5},
        {"attributes": 0x20},
        {"base_sequence": -1},
        {"producer_epoch": -1},
        {"producer_id": -2},
        {"base_offset": -1},
    ],
)
def test_rules_of_produced_batches(changes: dict[str, int]) -> None:
    validate_produced_batch(header_of())
    validate_produced_batch(header_of(producer_id=-1, producer_epoch=-1, base_sequence=-1))
    # It belongs to no transaction: the bit alone means nothing.
    validate_produced_batch(header_of(attributes=0x10, producer_id=-1, producer_epoch=-1))
    with pytest.raises(InvalidRecordError):
        validate_produced_batch(header_of(**changes))


@pytest.mark.parametrize("flag", [0x40, 0x80, 0x100, 0x4000, -0x8000])
def test_a_producer_sets_no_attribute_that_is_the_brokers_or_has_no_meaning(flag: int) -> None:
    with pytest.raises(InvalidRecordError, match="attributes"):
        validate_produced_batch(header_of(attributes=flag))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_produced_batch_has_a_codec_that_exists(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionError):
        validate_produced_batch(header_of(attributes=codec))


@pytest.mark.parametrize("codec", list(Compression))
def test_a_produced_batch_claims_no_more_records_than_its_bytes_can_hold(codec: Compression) -> None:
    """Nor does any of the densest batches that the codecs make come near to what is refused."""
    header = parse_batch_header(build_batch([Record(value=b"")] * 50_000, compression=codec))
    validate_produced_batch(header)
    claim = 2**31 - 1
    with pytest.raises(InvalidRecordError, match="cannot hold"):
        validate_produced_batch(header._replace(batch_length=149, record_count=claim, last_offset_delta=claim - 1))


def test_a_batch_holds_as_many_uncompressed_records_as_have_room_and_not_one_more() -> None:
    size_bytes = HEADER_SIZE_BYTES - 12 + 7 * 3
    full = header_of(record_count=3, last_offset_delta=2, batch_length=size_bytes)
    validate_produced_batch(full)
    with pytest.raises(InvalidRecordError, match="cannot hold"):
        validate_produced_batch(full._replace(batch_length=size_bytes - 1))


def test_offset_and_epoch_are_patched_outside_the_crc() -> None:
    buf = bytearray(b"xx" + build_batch(RECORDS))
    patch_base_offset_and_epoch(memoryview(buf), 2, 2**40, 9)
    header = parse_batch_header(buf, 2)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    verify_crc(buf, 2, header)
    assert [record.offset for record in iter_records(buf, 2)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_log_append_time_restamps_every_record_and_keeps_the_crc_right() -> None:
    buf = bytearray(build_batch(RECORDS, compression=Compression.ZSTD))
    patch_log_append_time(buf, 0, 5_000)
    header = parse_batch_header(buf)
    verify_crc(buf, 0, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.compression is Compression.ZSTD
    assert {record.timestamp_ms for record in iter_records(buf, strict=True)} == {5_000}
    patch_log_append_time(buf, 0, 5_000)
    assert parse_batch_header(buf) == header


@given(st.data())
def test_the_crc_finds_every_flipped_bit_it_covers(data: st.DataObject) -> None:
    buf = bytearray(build_batch(RECORDS))
    header = parse_batch_header(buf)
    bit = data.draw(st.integers(17 * 8, len(buf) * 8 - 1))
    buf[bit // 8] ^= 1 << bit % 8
    flipped = parse_batch_header(buf)
    assert crc_matches(bytes(buf), 0, flipped) is False
    with pytest.raises(CorruptRecordError):
        verify_crc(memoryview(buf), 0, flipped)
    assert header.crc == parse_batch_header(build_batch(RECORDS)).crc


def test_the_crc_of_a_batch_larger_than_the_copied_piece() -> None:
    batch = build_batch([Record(value=bytes(range(256)) * 2_000)])
    verify_crc(memoryview(batch), 0, parse_batch_header(batch))
