"""Work in slices of time, by a clock that each look at it moves."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count

import pytest
import trio

from ottla.runtime import time_slice
from ottla.runtime.time_slice import CHUNK_ELEMENTS, SLICE_SECONDS, TimeSlice, chunks
from ottla.runtime.work import LIGHT_ELEMENTS, LargeRequestQueue, Work

#: Looks at the clock until a slice is over.
LOOKS = 10


@pytest.fixture
def make_slice(monkeypatch: pytest.MonkeyPatch) -> Callable[[], TimeSlice]:
    looks = count()
    monkeypatch.setattr(time_slice, "perf_counter", lambda: next(looks) * SLICE_SECONDS / (LOOKS - 0.5))
    return TimeSlice


async def test_a_coroutine_lets_others_run_after_each_slice(
    make_slice: Callable[[], TimeSlice], monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[int] = []
    done: list[int] = []

    async def checkpoint() -> None:
        stops.append(len(done))

    monkeypatch.setattr(trio.lowlevel, "checkpoint", checkpoint)
    own = make_slice()
    for number in range(3 * LOOKS):
        done.append(number)
        await own.maybe_yield()
    assert stops == [LOOKS, 2 * LOOKS, 3 * LOOKS]


def test_a_generator_stops_after_each_slice(make_slice: Callable[[], TimeSlice]) -> None:
    done: list[int] = []

    def steps() -> Generator[None]:
        own = make_slice()
        for number in range(2 * LOOKS):
            if own.is_over:
                yield
                own.renew()
            done.append(number)

    stops = [len(done) for _ in steps()]
    assert stops == [LOOKS - 1, 2 * LOOKS - 1]
    assert len(done) == 2 * LOOKS


def test_chunks_are_the_items_in_order() -> None:
    some = list(chunks(iter(range(2 * CHUNK_ELEMENTS + 1))))
    assert [len(chunk) for chunk in some] == [CHUNK_ELEMENTS, CHUNK_ELEMENTS, 1]
    assert [item for chunk in some for item in chunk] == list(range(2 * CHUNK_ELEMENTS + 1))
    assert list(chunks([])) == []


async def test_work_that_may_not_await_is_due_when_its_slice_is_over(make_slice: Callable[[], TimeSlice]) -> None:
    work = Work()
    assert [work.is_due() for _ in range(LOOKS)] == [False] * (LOOKS - 1) + [True]
    await work.charge(0)
    assert not work.is_due()
    assert work.elements == LOOKS + 1


async def test_work_that_may_not_await_is_due_when_it_has_become_heavy() -> None:
    work = Work(LargeRequestQueue(lambda: 5 * LIGHT_ELEMENTS))
    assert work.is_due(LIGHT_ELEMENTS + 1)
    await work.charge(0)
    work.renew()
    assert not work.is_due(LIGHT_ELEMENTS)
    work.leave_queue()
    free = Work()
    free.is_due(LIGHT_ELEMENTS + 1)
    await free.charge(0)
    free.renew()
    assert not free.is_due()
