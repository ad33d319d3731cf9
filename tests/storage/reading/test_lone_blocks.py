"""A tail of blocks that hold one batch each, as a quiet log has it: read as if nothing were joined."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.records import Record, build_batch, parse_batch_header
from ottla.storage.memory.iobuf import Fragment
from ottla.storage.reading.plan import ReadableLog, ReadPlan
from ottla.storage.store.memstore import JOINED_BATCHES, RunGroup

RUN_BYTES = 1 << 20


class Log:
    """What a plan asks of its log."""

    aborted = None
    cleanings = 0


@cache
def batch_of(size: int) -> bytes:
    return build_batch([Record(value=b"v" * size)])


def make_tail(sizes: list[list[int]]) -> list[RunGroup]:
    """Blocks of batches of one record each, of these sizes; offsets from 0."""
    tail, offset = [], 0
    for block in sizes:
        group = RunGroup(cast(Any, None), RUN_BYTES)
        for size in block:
            view = memoryview(bytearray(batch_of(size)))
            group.add(parse_batch_header(view), view, Fragment(view), offset, offset, 0)
            offset += 1
        tail.append(group)
    return tail


def plan_of(tail: list[RunGroup], max_bytes: int, end_offset: int, *, min_one_batch: bool = True) -> ReadPlan:
    plan = ReadPlan(cast(ReadableLog, Log()), 0, max_bytes, end_offset, min_one_batch=min_one_batch)
    plan.read_tail(tail, 0)
    return plan


@given(
    sizes=st.lists(st.lists(st.sampled_from([0, 100, 4000]), min_size=1, max_size=3), min_size=1, max_size=40),
    max_bytes=st.integers(0, 30_000),
    end_offset=st.integers(1, 120),
    min_one_batch=st.booleans(),
)
def test_as_many_batches_as_fit(
    sizes: list[list[int]], max_bytes: int, end_offset: int, *, min_one_batch: bool
) -> None:
    tail = make_tail(sizes)
    batches = [bytes(view) for group in tail for view in group.views]
    taken, taken_bytes = 0, 0
    while taken < min(len(batches), end_offset):
        fits = taken_bytes + len(batches[taken]) <= max_bytes
        if not fits and (taken or not min_one_batch):
            break
        taken_bytes += len(batches[taken])
        taken += 1

    plan = plan_of(tail, max_bytes, end_offset, min_one_batch=min_one_batch)

    assert plan.records is not None
    assert plan.records.to_bytes() == b"".join(batches[:taken])
    assert plan.next_offset == taken


def test_many_small_blocks_are_one_piece_that_holds_no_frame() -> None:
    tail = make_tail([[100]] * (JOINED_BATCHES + 1))
    references = [group.fragments[0].references for group in tail if group.fragments[0] is not None]

    plan = plan_of(tail, RUN_BYTES, len(tail))

    assert plan.records is not None
    assert len(list(plan.records)) == 1
    assert [group.fragments[0].references for group in tail if group.fragments[0] is not None] == references


def test_large_blocks_are_not_copied() -> None:
    tail = make_tail([[10_000]] * (JOINED_BATCHES + 1))

    plan = plan_of(tail, RUN_BYTES, len(tail))

    assert plan.records is not None
    assert len(list(plan.records)) == len(tail)
