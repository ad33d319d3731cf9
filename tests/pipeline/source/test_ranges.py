"""Ranges are cut into tasks without losing or doubling an offset."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.client import TopicPartition
from ottla.pipeline.source.ranges import OffsetRange, split
from ottla.pipeline.source.stream import from_json, limited, to_json

ranges = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), min_size=1, max_size=8).map(
    lambda pairs: [
        OffsetRange(TopicPartition("t", number), start, start + size) for number, (start, size) in enumerate(pairs)
    ]
)


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 3000))
def test_parts_cover_every_range_once(
    whole: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    parts = split(whole, min_partitions, max_records)

    for wanted in whole:
        mine = [part for part in parts if part.partition == wanted.partition]
        assert sum(part.size for part in mine) == wanted.size
        assert all(part.size > 0 for part in mine)
        assert all(low.end == high.start for low, high in pairwise(mine))
        assert not mine or (mine[0].start, mine[-1].end) == (wanted.start, wanted.end)
    if max_records is not None:
        assert all(part.size <= max_records for part in parts)


def test_large_partitions_are_cut_into_more_parts() -> None:
    large, small = (OffsetRange(TopicPartition("t", number), 0, size) for number, size in enumerate((900, 100)))

    parts = split([large, small], 10, None)

    assert [part.partition.partition for part in parts] == [0] * 9 + [1]


@given(ranges, st.integers(1, 3000))
def test_a_limit_is_kept_and_there_is_progress(whole: list[OffsetRange], max_records: int) -> None:
    start = {part.partition: part.start for part in whole}
    end = {part.partition: part.end for part in whole}

    reached = limited(start, end, max_records)

    assert all(start[part] <= reached[part] <= end[part] for part in end)
    taken = sum(reached[part] - start[part] for part in end)
    assert taken == min(max_records, sum(part.size for part in whole))


def test_offsets_are_the_connectors_json() -> None:
    offsets = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2, TopicPartition("a", 2): 3}

    assert to_json(offsets) == {"a": {"2": 3, "10": 2}, "b": {"0": 1}}
    assert from_json(to_json(offsets)) == offsets
