"""Many small batches in memory are read as one piece, and it makes no difference but the number of views."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.records import Record, build_batch, parse_batch_header
from ottla.storage.memory.iobuf import Fragment, IOBuf
from ottla.storage.store import memstore
from ottla.storage.store.memstore import JOINED_BATCHES, RunGroup

LOG: Any = None


def make_group(counts: list[int], *, value_bytes: int = 10) -> tuple[RunGroup, list[Fragment]]:
    """A group of batches of so many records, each in a fragment of its own."""
    group = RunGroup(LOG, 1 << 20)
    fragments = []
    offset = 0
    for count in counts:
        data = memoryview(bytearray(build_batch([Record(value=bytes(value_bytes))] * count, base_offset=offset)))
        fragments.append(Fragment(data))
        group.add(parse_batch_header(data), data, fragments[-1], offset, offset + count - 1, 0)
        offset += count
    return group, fragments


def read(group: RunGroup, *args: Any, already: int = 0, **options: Any) -> tuple[int, bytes, int]:
    target = IOBuf()
    target.append(bytes(already))
    following = group.read(target, *args, **options)
    data, views = target.to_bytes(), len(list(target))
    target.release()
    return following, data, views


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=40),
    offset=st.integers(0, 130),
    end_offset=st.integers(0, 130),
    max_bytes=st.integers(0, 4000),
    already=st.sampled_from([0, 0, 70, 1000]),
    min_one_batch=st.booleans(),
    truncated=st.none() | st.integers(1, 120),
)
def test_joined_or_not_the_same_is_read(
    counts: list[int],
    offset: int,
    end_offset: int,
    max_bytes: int,
    already: int,
    min_one_batch: bool,
    truncated: int | None,
) -> None:
    chained, _ = make_group(counts)
    joined, _ = make_group(counts)
    joined._join()
    if truncated is not None:
        for group in (chained, joined):
            group.truncate(max(truncated, counts[0]))
    expected, data, _ = _read_chained(chained, offset, end_offset, max_bytes, min_one_batch, already)
    following, joined_data, views = read(
        joined, offset, end_offset, max_bytes, already=already, min_one_batch=min_one_batch
    )
    assert (following, joined_data) == (expected, data)
    assert views <= 2


def _read_chained(
    group: RunGroup, offset: int, end_offset: int, max_bytes: int, min_one_batch: bool, already: int
) -> tuple[int, bytes, int]:
    at_least = memstore.JOINED_BATCHES
    memstore.JOINED_BATCHES = 1 << 30
    try:
        return read(group, offset, end_offset, max_bytes, already=already, min_one_batch=min_one_batch)
    finally:
        memstore.JOINED_BATCHES = at_least


def test_frames_are_given_back_when_their_batches_are_joined() -> None:
    group, fragments = make_group([1] * JOINED_BATCHES)
    assert {fragment.references for fragment in fragments} == {2}
    _, data, views = read(group, 0, 1 << 40, 1 << 20, min_one_batch=True)
    assert views == 1
    assert len(data) == group.size_bytes
    assert {fragment.references for fragment in fragments} == {1}
    group.release()
    assert {fragment.references for fragment in fragments} == {1}


def test_few_or_large_batches_are_shared_as_they_are() -> None:
    for counts, value_bytes in (([1] * (JOINED_BATCHES - 1), 10), ([1] * JOINED_BATCHES, 4000)):
        group, fragments = make_group(counts, value_bytes=value_bytes)
        _, _, views = read(group, 0, 1 << 40, 1 << 20, min_one_batch=True)
        assert views == len(counts)
        assert {fragment.references for fragment in fragments} == {2}
