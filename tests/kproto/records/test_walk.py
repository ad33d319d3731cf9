"""The walk over produced records: it agrees with the reader on what is sound, and refuses everything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.records import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    InvalidRecordError,
    Record,
    TimestampType,
    build_batch,
    iter_records,
    parse_batch_header,
    walk_produced_records,
)
from ottla.kproto.records.builder import assemble_batch
from ottla.kproto.records.record import encode_record

CONTENT = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=10), CONTENT), max_size=3).map(tuple)
TIMESTAMPS = st.integers(-1, 2**42)
RECORDS = st.lists(st.builds(Record, st.just(-1), TIMESTAMPS, CONTENT, CONTENT, HEADERS), min_size=1, max_size=20)


def split(batch: bytes) -> tuple[bytes, BatchHeader]:
    return batch[HEADER_SIZE_BYTES:], parse_batch_header(batch)


def header_for(count: int) -> BatchHeader:
    header = parse_batch_header(build_batch([Record(timestamp_ms=1_000)]))
    return header._replace(record_count=count, last_offset_delta=count - 1)


def walk(payload: bytes, count: int) -> list[tuple[int, int]]:
    return list(walk_produced_records(payload, header_for(count)))


def record(offset_delta: int, key: bytes | None = None, value: bytes | None = b"v") -> bytes:
    return encode_record(offset_delta, 0, key, value, ())


@given(RECORDS)
def test_what_is_built_is_sound(records: list[Record]) -> None:
    walked = list(walk_produced_records(*split(build_batch(records))))
    assert walked == [(record.timestamp_ms, -1 if record.key is None else len(record.key)) for record in records]


def test_the_brokers_time_is_every_records() -> None:
    batch = build_batch([Record(timestamp_ms=7)] * 2, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert [timestamp for timestamp, _ in walk_produced_records(*split(batch))] == [7, 7]


@given(RECORDS, st.data())
def test_what_passes_can_be_read(records: list[Record], data: st.DataObject) -> None:
    """Whatever a byte is changed to: what the walk lets through, the reader reads; and nothing else is raised."""
    payload, header = split(build_batch(records))
    damaged = bytearray(payload)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        walked = list(walk_produced_records(bytes(damaged), header))
    except InvalidRecordError:
        return
    read = [found.timestamp_ms for found in iter_records(assemble_batch(header, bytes(damaged)))]
    assert [timestamp for timestamp, _ in walked] == read


@given(st.binary(max_size=300), st.integers(1, 2**31 - 1))
def test_random_bytes(payload: bytes, count: int) -> None:
    try:
        walk(payload, count)
    except InvalidRecordError:
        return
    assert count * 7 <= len(payload)


@pytest.mark.parametrize(
    ("payload", "count", "reason"),
    [
        pytest.param(record(0) + record(0), 2, "offset delta", id="the same offset twice"),
        pytest.param(record(1), 1, "offset delta", id="not from 0"),
        pytest.param(record(0) + record(2), 2, "offset delta", id="a gap"),
        pytest.param(record(0) + record(1), 1, "follow", id="more than the header says"),
        pytest.param(record(0), 2**31 - 1, "cannot fit", id="fewer than the header says"),
        pytest.param(record(0, value=b"x" * 20), 2, "beyond", id="fewer, with room for more"),
        pytest.param(record(0)[:-1], 1, "of", id="cut off"),
        pytest.param(b"\xff" * 40, 1, "too long", id="a length that does not end"),
        pytest.param(bytes([2 * 8, 0, 0, 0, 1, 1, 2, 9, 9]), 1, "header", id="header lengths"),
        pytest.param(bytes([2 * 7, 0, 0, 0, 1, 1, 0, 0]), 1, "its length", id="a record longer than it is"),
    ],
)
def test_what_is_refused(payload: bytes, count: int, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        walk(payload, count)


def test_a_repeated_record_is_refused_before_the_rest_is_looked_at() -> None:
    """Repetition is what compresses without bounds: two million records in 1.4 KB."""
    walked = walk_produced_records(record(0) * 100_000, header_for(100_000))
    assert next(walked) == (1_000, -1)
    with pytest.raises(InvalidRecordError, match="record 1 has the offset delta 0"):
        next(walked)
