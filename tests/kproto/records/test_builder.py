"""A batch of one plain record, built by hand: the bytes that the general builder makes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.records import InvalidRecordError, Record, build_batch, build_lone

BYTES = st.binary(max_size=200) | st.sampled_from([bytes(63), bytes(64), bytes(8_191), bytes(8_192), bytes(20_000)])


@given(BYTES, BYTES | st.none(), st.integers(-1, (1 << 63) - 1))
def test_equal_to_the_general_builder(key: bytes, value: bytes | None, timestamp_ms: int) -> None:
    record = Record(timestamp_ms=timestamp_ms, key=key, value=value)
    assert build_lone(key, value, timestamp_ms) == build_batch([record])


def test_a_timestamp_that_does_not_fit() -> None:
    with pytest.raises(InvalidRecordError):
        build_lone(b"key", b"value", 1 << 63)
