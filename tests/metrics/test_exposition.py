"""The text of a scrape: what Prometheus' own parser reads out of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ottla.metrics.exposition import render
from ottla.metrics.metric import Family, counter, gauge, histogram
from ottla.runtime import time_slice
from ottla.storage.histogram import BOUNDS_SECONDS, Histogram


async def given_families(families: Iterable[Family]) -> AsyncGenerator[Family, None]:
    for family in families:
        yield family


async def text_of(*families: Family) -> str:
    return b"".join([piece async for piece in render(given_families(families))]).decode()


@given(label=st.text(max_size=20), value=st.one_of(st.integers(-(10**18), 10**18), st.floats(allow_nan=False)))
def test_labels_and_numbers_come_back(label: str, value: float) -> None:
    family = Family(gauge("a_gauge", 'With "quotes", a \\ and\na new line.', "name"), [((label,), value)])
    text = trio.run(text_of, family)
    (read,) = text_string_to_metric_families(text)
    assert read.documentation == family.metric.help
    (sample,) = read.samples
    assert sample.labels == {"name": label}
    assert float(sample.value) == float(value)


async def test_a_histogram_counts_up() -> None:
    durations = Histogram()
    for seconds in (0.0001, 0.0005, 0.003, 0.3, 99.0):
        durations.observe(seconds)
    (read,) = text_string_to_metric_families(
        await text_of(Family(histogram("h_seconds", "Durations.", "api"), [(("fetch",), durations)]))
    )
    assert read.type == "histogram"
    buckets = {s.labels["le"]: s.value for s in read.samples if s.name == "h_seconds_bucket"}
    assert len(buckets) == len(BOUNDS_SECONDS) + 1
    assert [buckets[le] for le in ("0.0005", "0.001", "0.005", "0.25", "0.5", "10.0", "+Inf")] == [2, 2, 3, 3, 4, 4, 5]
    assert {s.name: s.value for s in read.samples if "le" not in s.labels} == {
        "h_seconds_count": 5,
        "h_seconds_sum": pytest.approx(99.3036),
    }


@given(st.lists(st.floats(0, 20)))
def test_a_histogram_has_every_duration_in_its_class(durations: list[float]) -> None:
    histogram = Histogram()
    for seconds in durations:
        histogram.observe(seconds)
    assert histogram.count == len(durations)
    for number, bound in enumerate(BOUNDS_SECONDS):
        assert sum(histogram.counts[: number + 1]) == sum(seconds <= bound for seconds in durations)


async def test_families_follow_each_other_with_their_kinds() -> None:
    text = await text_of(
        Family(counter("a_total", "A."), [((), 1)]),
        Family(gauge("b", "B.", "x"), []),
        Family(gauge("c", "C."), [((), 2)]),
    )
    assert [(f.name, f.type, len(f.samples)) for f in text_string_to_metric_families(text)] == [
        ("a", "counter", 1),
        ("b", "gauge", 0),
        ("c", "gauge", 1),
    ]


async def test_others_run_during_a_long_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.0)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        pieces = [
            p
            async for p in render(
                given_families([Family(gauge("g", "G.", "n"), (((str(n),), n) for n in range(5000)))])
            )
        ]
        nursery.cancel_scope.cancel()
    assert turns >= 5000 // 16
    assert len(pieces) > 1


async def test_a_name_that_is_no_text_does_not_spoil_the_scrape() -> None:
    text = await text_of(Family(gauge("g", "G.", "group"), [(("\ud800",), 1)]))
    assert 'g{group="?"} 1' in text
