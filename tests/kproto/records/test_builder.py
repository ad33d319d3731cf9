"""Batches of keys and values, built by hand: the bytes that the general builder makes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.records import InvalidRecordError, Record, build_batch, build_keyed

BYTES = st.binary(max_size=200) | st.sampled_from(
    [bytes(63), bytes(64), bytes(255), bytes(256), bytes(8_191), bytes(8_192), bytes(20_000)]
)
RECORDS = st.lists(st.tuples(BYTES, BYTES | st.none()), min_size=1, max_size=5)


@given(RECORDS, st.integers(-1, (1 << 63) - 1), st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_equal_to_the_general_builder(
    records: list[tuple[bytes, bytes | None]], timestamp_ms: int, producer: tuple[int, int] | None
) -> None:
    options: dict[str, Any] = {} if producer is None else {"producer_id": producer[0], "producer_epoch": producer[1]}
    expected = build_batch(
        [Record(timestamp_ms=timestamp_ms, key=key, value=value) for key, value in records],
        is_transactional=producer is not None,
        **options,
    )
    assert build_keyed(records, timestamp_ms, is_transactional=producer is not None, **options) == expected


@pytest.mark.parametrize("count", [255, 256, 257, 9_000])
def test_many_records(count: int) -> None:
    records = [(b"key", b"value")] * count
    expected = build_batch([Record(timestamp_ms=5, key=key, value=value) for key, value in records])
    assert build_keyed(records, 5) == expected


@pytest.mark.parametrize("options", [{"timestamp_ms": 1 << 63}, {"producer_id": 1 << 63}, {"producer_epoch": 1 << 15}])
def test_what_does_not_fit(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecordError):
        build_keyed([(b"key", b"value")], **{"timestamp_ms": 0} | options)
