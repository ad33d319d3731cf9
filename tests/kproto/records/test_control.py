"""Control batches: markers are written as Kafka writes them, other kinds are recognised, unknown ones skipped."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.records import (
    ControlRecordType,
    CorruptRecordError,
    EndTxnMarker,
    InvalidRecordError,
    Record,
    build_batch,
    build_end_txn_marker,
    control_record_type,
    iter_records,
    parse_batch_header,
    parse_end_txn_marker,
    verify_crc,
)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(-1, 2**31 - 1), st.booleans())
def test_markers_round_trip(producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool) -> None:
    marker = EndTxnMarker(producer_id, producer_epoch, coordinator_epoch, is_commit)
    batch = build_end_txn_marker(marker, timestamp_ms=55, base_offset=3, leader_epoch=4)
    header = parse_batch_header(batch)
    verify_crc(batch, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.leader_epoch, header.base_sequence) == (3, 4, -1)
    assert header.max_timestamp_ms == 55
    assert parse_end_txn_marker(batch) == marker


def test_the_bytes_of_a_marker() -> None:
    (record,) = iter_records(build_end_txn_marker(EndTxnMarker(1, 2, 3, True), timestamp_ms=0))
    assert record.key == struct.pack(">hh", 0, 1)
    assert record.value == struct.pack(">hi", 0, 3)


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    return build_batch([Record(key=key, value=value)], producer_id=1, producer_epoch=0, is_control=True)


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6])
def test_other_kinds_are_no_markers(number: int) -> None:
    key = struct.pack(">hh", 0, number)
    assert control_record_type(key) == number
    assert parse_end_txn_marker(control_batch(key, b"")) is None


def test_unknown_kinds_are_skipped() -> None:
    key = struct.pack(">hh", 0, 99)
    assert control_record_type(key) is ControlRecordType.UNKNOWN
    assert parse_end_txn_marker(control_batch(key, b"")) is None


def test_later_versions_may_be_longer() -> None:
    batch = control_batch(struct.pack(">hhi", 1, 1, 0), struct.pack(">hii", 1, 8, 0))
    assert parse_end_txn_marker(batch) == EndTxnMarker(1, 0, 8, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\x00", b""), (struct.pack(">hh", 0, 0), None), (struct.pack(">hh", 0, 1), b"\x00\x00")],
)
def test_malformed_markers_are_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError):
        parse_end_txn_marker(control_batch(key, value))


def test_negative_versions_and_data_batches_are_invalid() -> None:
    with pytest.raises(InvalidRecordError):
        parse_end_txn_marker(control_batch(struct.pack(">hh", -1, 0), b""))
    with pytest.raises(InvalidRecordError):
        parse_end_txn_marker(control_batch(struct.pack(">hh", 0, 0), struct.pack(">hi", -1, 0)))
    with pytest.raises(InvalidRecordError):
        parse_end_txn_marker(build_batch([Record()]))
