"""The list of sealed segments: what was written is read, and no damage is."""

from __future__ import annotations

import pytest

from ottla.storage.errors import CorruptLogError
from ottla.storage.format.segment_list import ListedSegment, SegmentList, build_segment_list, parse_segment_list

SEGMENTS = [ListedSegment(0, 2, 5000, 4000), ListedSegment(5000, 0, 0, 700)]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_it_is_read_as_it_was_written(count: int) -> None:
    listed = SegmentList(SEGMENTS[:count], 5700)
    assert parse_segment_list(build_segment_list(listed)) == listed


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    content = build_segment_list(SegmentList(SEGMENTS, 5700))
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptLogError):
            parse_segment_list(bytes(damaged))
    for length in range(len(content)):
        with pytest.raises(CorruptLogError):
            parse_segment_list(content[:length])
