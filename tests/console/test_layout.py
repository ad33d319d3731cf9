"""The picture of where bytes lie, and the curves: geometry that must end, add up and stay bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.console import charts, layout
from ottla.console.history import LENGTH, Curve, History
from ottla.kproto.records import Record
from ottla.storage.store.segment import Segment

Browse = Callable[..., Any]

sizes = st.lists(st.integers(64, 2**40), min_size=1, max_size=layout.MAX_SEGMENTS)


@settings(max_examples=40)
@given(sizes)
def test_segments_share_the_columns_without_a_gap(segment_sizes: list[int]) -> None:
    places = layout._columns(segment_sizes)
    ends = [column + width for column, width in places]
    assert [column for column, _ in places] == [0, *ends[:-1]]
    assert ends[-1] == layout.COLUMNS
    assert all(width >= 1 for _, width in places)


@settings(max_examples=40)
@given(st.integers(1, 2**40), st.integers(1, layout.COLUMNS), st.data())
def test_a_run_is_spread_over_its_columns_and_nothing_is_lost(size: int, width: int, data: st.DataObject) -> None:
    segment = Segment("folder", 0)
    segment.size_bytes = size
    position = data.draw(st.integers(0, size - 1))
    length = data.draw(st.integers(0, size - position))
    weights = [0.0] * layout.COLUMNS
    layout._spread(weights, layout._Job(segment, b"", [], 0, width), position, length)
    assert abs(sum(weights) - length) <= max(1e-6 * size, 1e-6)
    assert all(weight <= size / width * (1 + 1e-9) + 1e-9 for weight in weights)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 100), min_size=layout.COLUMNS, max_size=layout.COLUMNS))
def test_cells_are_apart_and_in_order(weights: list[float]) -> None:
    cells = layout._cells(weights, [100.0] * layout.COLUMNS)
    covered = [column for cell in cells for column in range(cell.column, cell.column + cell.width)]
    assert covered == [column for column, weight in enumerate(weights) if weight > 0]
    assert all(1 <= cell.shade <= layout.SHADES for cell in cells)


async def test_the_picture_has_sealed_segments_too(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=3, segment_bytes="1048576")
        for number in range(60):
            await browser.produce(topic_id, number % 3, Record(value=bytes([number]) * 100_000))
        manager = browser.node.broker.replica_manager
        logs = [manager.get_partition(topic_id, index).log for index in range(3)]
        await browser.node.broker.log_manager.maintenance.wait_idle()
        picture = await layout.picture(logs)
        assert picture is not None
        assert sum(segment.is_sealed for segment in picture.segments) >= 3
        drawn = [sum(cell.width for cell in row.cells) for row in picture.rows]
        assert min(drawn) > layout.COLUMNS / 6
        assert (await browser.get("topics/t")).status == 200


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1e12), max_size=2 * LENGTH))
def test_a_curve_is_bounded_and_stays_in_its_box(values: list[float]) -> None:
    curve = Curve()
    for value in values:
        curve.add(value)
    assert list(curve.values) == values[-LENGTH:]
    line = charts.sparkline(curve.values, LENGTH)
    if line is None:
        assert len(values) < 2
        return
    points = [tuple(map(float, point.split(","))) for point in line.line[1:].split("L")]
    assert all(-0.1 <= x <= charts.WIDTH + 0.1 and 0 <= y <= charts.HEIGHT for x, y in points)


async def test_rates_are_of_what_was_counted_between_samples(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        history = History(browser.node.broker)
        await history.sample()
        assert history.bytes_in.last is None
        await browser.produce(topic_id, 0, *(Record(value=b"x" * 100) for _ in range(50)))
        await history.sample()
        assert (history.bytes_in.last or 0) > 0
        assert history.topic_rates[topic_id] > 0
        await history.sample()
        assert history.bytes_in.last == 0
        assert topic_id not in history.topic_rates
